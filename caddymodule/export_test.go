package caddymodule

// What tests from outside use of the demo.
var (
	AdaptDemo   = adaptDemo
	DemoCommand = demoCommand
	StartDemo   = startDemo
	Introduce   = demoRun.introduce
)

// Keep is what of a runtime is done once a minute about retention.
var Keep = (*Runtime).keep
