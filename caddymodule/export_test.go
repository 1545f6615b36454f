package caddymodule

// Keep is what of a runtime is done once a minute about retention.
var Keep = (*Runtime).keep
