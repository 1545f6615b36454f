package caddymodule

// What tests from outside use of the demo.
var (
	AdaptDemo   = adaptDemo
	DemoCommand = demoCommand
	StartDemo   = startDemo
	Introduce   = demoRun.introduce
)

// Keep is what of a node is done once a minute about retention.
var Keep = (*Node).keep
