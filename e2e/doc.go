// Package e2e holds the end-to-end tests: the gateway as its operator runs it,
// a process of its own with its store on disk, called by the vendors' own Go
// SDKs and by clients that look at every byte, in front of a backend that
// records what reaches it.
//
// It is a module of its own, so that the SDKs are no dependency of the gateway.
// The gateway under test is the test binary itself, started again as Caddy; see
// TestMain. Nothing has to be built or installed before
//
//	go test ./...
//
// Two flags make the tests of endurance longer: -stream.length, for how long a
// stream lives through reloads, and -kill.rounds, how often the process is
// killed.
package e2e
