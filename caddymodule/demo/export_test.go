package demo

// Adapt is what tests from outside use.
var Adapt = adapt
