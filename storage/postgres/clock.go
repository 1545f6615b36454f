package postgres

import (
	"sync"
	"time"
)

// clock is the time of the database: the monotonic clock of this machine, plus an offset that
// each view measures. So all gateways have about the same time. It never goes back. If the clock
// of the database jumps, each view moves it by at most maxStep.
type clock struct {
	born   time.Time // of the monotonic clock: a step of this machine's clock changes nothing
	mu     sync.Mutex
	offset time.Duration
	known  bool
	last   time.Time
}

const (
	maxStep = 50 * time.Millisecond // of the offset, by one view
	maxTrip = time.Second           // of an answer that is believed
)

func newClock() *clock { return &clock{born: time.Now()} }

// now returns the time of the database.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.local().Add(c.offset); now.After(c.last) {
		c.last = now
	}
	return c.last
}

// local is the time of this machine as it was at born, and the time since.
func (c *clock) local() time.Time { return c.born.Add(time.Since(c.born)).Round(0) }

// learn corrects the clock by an answer of the database, in microseconds since 1970, to a
// question that was sent at that time.
func (c *clock) learn(micros int64, sent time.Time) {
	trip := time.Since(sent)
	if trip > maxTrip {
		return
	}
	offset := time.UnixMicro(micros).Sub(c.local().Add(-trip / 2))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		offset = c.offset + max(-maxStep, min(maxStep, offset-c.offset))
	}
	c.offset, c.known = offset, true
}
