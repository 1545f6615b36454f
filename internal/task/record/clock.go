package record

import (
	"math/rand/v2"
	"time"
)

// Idle is the maximum sleep of a driver or a sender: another process may have left work.
const Idle = time.Minute

// JobLife is the maximum time of a job at a backend (docs/reference/tasks.md#states).
const JobLife = 24 * time.Hour

// Jitter returns d changed at random by at most a fifth, so that events do not coincide.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // not secret
}
