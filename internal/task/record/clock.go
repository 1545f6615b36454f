package record

import (
	"math/rand/v2"
	"time"
)

// Idle is how long a driver or a sender sleeps at most: another node may have left work.
const Idle = time.Minute

// JobLife is how long a job lives at a backend (docs/reference/tasks.md#states).
const JobLife = 24 * time.Hour

// Jitter spreads events that would otherwise coincide, by a fifth.
func Jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // it is no secret
}
