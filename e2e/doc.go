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
// killed. What tests leave to chance they draw from a seed, which they tell, and
// which -seed gives them again.
//
// The tests of money share these parts:
//
//	amount_test.go   nano-units, prices and their arithmetic, none of it the gateway's
//	talk_test.go     a call as both its sides conduct it, and the billing rule
//	conduct_test.go  the two sides
//	deed_test.go     what moves money once: purchases, renewals, top-ups, credits
//	market_test.go   all of that at once, and what the books must say afterwards
//	books_test.go    what the operator and the customer are shown
//
// Those of tasks share these:
//
//	studio_test.go      a generation service over HTTP, of two faces
//	receiver_test.go    where callbacks go
//	commission_test.go  a task as its customer has it, and what all sides must say of it
//
// Those of people share people_client_test.go: a person with cookies, an app that
// shows codes and a passkey in software. browser_test.go has a real Chromium do
// the same by the script in the directory browser, which needs node and
//
//	cd browser && npm ci
//
// Without them it is skipped; with CI_BROWSER=required in the environment, that
// is a failure.
package e2e
