package cli

// What tests from outside use of the demo.
var (
	AdaptDemo   = adaptDemo
	DemoCommand = demoCommand
	StartDemo   = startDemo
	Introduce   = demoRun.introduce
)
