package task

import (
	"sync"
	"time"
)

// paces are how often a backend is asked for a job, by how long it has had it
// (docs/reference/tasks.md#polling-of-services).
var paces = []struct {
	until time.Duration // since the hand-over
	every time.Duration
}{
	{30 * time.Second, 2 * time.Second},
	{5 * time.Minute, 5 * time.Second},
	{1<<63 - 1, 15 * time.Second},
}

// failingPaces are the least pauses after polls without an answer, in a row.
var failingPaces = []time.Duration{0, 2 * time.Second, 5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute}

// mostPause bounds what a backend can ask for by Retry-After.
const mostPause = 10 * time.Minute

// interval is how long to wait before the next look at a job of an age, after
// so many without an answer.
func interval(age time.Duration, failing int) time.Duration {
	every := failingPaces[min(failing, len(failingPaces)-1)]
	for _, p := range paces {
		if age < p.until {
			every = max(every, p.every)
			break
		}
	}
	return jitter(every)
}

// bucket bounds how many begin in a second: so many at once, and then at their
// pace. The zero value is full.
type bucket struct {
	mu   sync.Mutex
	used float64 // of those of a second
	at   time.Time
}

// free is how many may begin now, and when there is one if there is none.
func (b *bucket) free(perSecond int, now time.Time) (n int, wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if elapsed := now.Sub(b.at); elapsed > 0 {
		b.used = max(0, b.used-elapsed.Seconds()*float64(perSecond))
	}
	b.at = now
	if n = int(float64(perSecond) - b.used); n > 0 {
		return n, 0
	}
	return 0, time.Duration((b.used-float64(perSecond)+1)/float64(perSecond)*float64(time.Second)) + time.Millisecond
}

// take counts some that have begun.
func (b *bucket) take(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += float64(n)
}
