package caddymodule

// AdaptDemo returns what the demo runs, for tests from outside.
var AdaptDemo = adaptDemo
