// Package e2e contains the end-to-end tests. The gateway runs as its operator
// runs it: as a separate process with its store on disk. The clients are the
// vendors' Go SDKs and clients that compare every byte. The backend records
// every request that reaches it.
//
// It is a separate module, so that the gateway does not depend on the SDKs. The
// gateway under test is the test binary itself, started again as Caddy; see
// TestMain. Nothing has to be built or installed before
//
//	go test ./...
//
// Three flags make the endurance tests longer: -stream.length is how long a
// stream continues through reloads, -kill.rounds is how often the process is
// killed, and -sum.calls is how many random calls of all routes are compared
// with the ledger. Random choices come from a seed, which the tests log and
// which -seed sets.
//
// The tests of money share these files:
//
//	amount_test.go         nano-units, prices and independent arithmetic
//	scripted_call_test.go  a call with the behaviour of both sides, and the billing rule
//	surface_call_test.go   the same for answers that are no stream of text
//	run_call_test.go       how both sides perform it
//	payment_test.go        purchases, renewals, top-ups and credits
//	workload_test.go       all of these concurrently, and the expected ledger
//	accounting_test.go     the operator's and the user's view of the money
//
// The tests of tasks share these:
//
//	mock_service_test.go  a generation service with two APIs over HTTP
//	receiver_test.go      the receiver of callbacks
//	generation_test.go    a task of a user, and the checks of all sides
//
// The tests of console users share people_client_test.go: a user with cookies,
// an authenticator app and a software passkey. browser_test.go does the same in
// a real Chromium, with the script in the directory browser. That needs node
// and
//
//	cd browser && npm ci
//
// Without these the test is skipped. With CI_BROWSER=required in the
// environment, it fails.
package e2e
