package cli

// What tests from outside use of the demo.
var (
	AdaptDemo    = adaptDemo
	StartDemo    = startDemo
	Introduction = introduction
)
