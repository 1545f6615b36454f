package gatetest

import (
	"testing"
	"time"
)

// lookAgain is the interval of Eventually.
const lookAgain = 20 * time.Millisecond

// Eventually calls look until it returns true, and returns what it saw. The
// test fails with the last value after Patience. Prefer a channel, a log line
// or a waiting query if there is one.
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
