package gatetest

import (
	"testing"
	"time"
)

// pollInterval is the interval of Eventually.
const pollInterval = 20 * time.Millisecond

// Eventually calls look until ok is true, and returns the value. After Timeout, the
// test fails with what, the expected event, and the last value. Prefer a channel, a
// log line or a waiting query if there is one.
func Eventually[T any](t testing.TB, what string, look func() (seen T, ok bool)) T {
	t.Helper()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for timeout := time.After(Timeout); ; {
		seen, ok := look()
		if ok {
			return seen
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not within %v: %s; the last value is %+v", Timeout, what, seen)
		}
	}
}
