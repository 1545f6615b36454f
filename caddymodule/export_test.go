package caddymodule

// Keep applies the retention of a runtime, which the runtime does once a minute.
var Keep = (*Runtime).keep
