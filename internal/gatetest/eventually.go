package gatetest

import (
	"testing"
	"time"
)

// lookAgain is how soon Eventually looks once more.
const lookAgain = 20 * time.Millisecond

// Eventually looks until what it waits for is so, and returns what it saw then.
// The test fails when that is not so in time, with what was seen last. It is for
// what nobody announces: better is a channel, a line of the log or a query that
// waits.
func Eventually[T any](t testing.TB, what string, look func() (seen T, ok bool)) T {
	t.Helper()
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for timeout := time.After(Patience); ; {
		seen, ok := look()
		if ok {
			return seen
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("it never came that %s: there is %+v", what, seen)
		}
	}
}
