package demo

// Adapt is adapt for the external tests.
var Adapt = adapt
