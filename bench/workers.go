package main

import (
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// workers are goroutines that repeat one operation.
type workers struct {
	concurrency int                 // how many goroutines run
	do          func(n int64) error // n is different each time
	timed       bool                // record the duration of each operation
	users       int                 // the operations are for this many users, in turn; zero: for no user
	last        atomic.Int64
	sample      sample

	mu   sync.Mutex
	took []time.Duration // in no order
}

// discardSamples discards the samples of the warm-up.
func (c *workers) discardSamples() { c.sample, c.took = sample{}, nil }

// doTimes runs the operation this many times in all.
func (c *workers) doTimes(times int64) error {
	var (
		group  sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for range c.concurrency {
		group.Go(func() {
			for n := c.last.Add(1) - 1; n < times && failed.Load() == nil; n = c.last.Add(1) - 1 {
				if err := c.do(n); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// work repeats the operation for a duration, and counts what was done until the
// last goroutine has ended.
func (c *workers) work(d time.Duration) error {
	var (
		group  sync.WaitGroup
		failed atomic.Pointer[error]
		before = c.last.Load()
		began  = time.Now()
	)
	spent, err := cpuTime(os.Getpid())
	if err != nil {
		return err
	}
	for range c.concurrency {
		group.Go(func() {
			var took []time.Duration
			for last := began; last.Sub(began) < d && failed.Load() == nil; {
				if err := c.do(c.last.Add(1)); err != nil {
					failed.Store(&err)
				}
				now := time.Now()
				if c.timed {
					took = append(took, now.Sub(last))
				}
				last = now
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.took = append(c.took, took...)
		})
	}
	group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	c.sample.Units += c.last.Load() - before
	c.sample.Took += time.Since(began)
	now, err := cpuTime(os.Getpid())
	c.sample.CPU += now - spent
	return err
}

// alternate runs groups of workers in turns. Each group first runs its operation once for
// each user, because the first operation of a user loads their balances into memory. Then it
// warms up. Neither counts. A CPU profile of all of it goes to the file profile, unless that
// is empty.
func alternate(t turns, profile string, groups ...*workers) error {
	if profile != "" {
		file, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, c := range groups {
		if err := c.doTimes(int64(c.users)); err != nil {
			return err
		}
		if err := c.work(t.Warm); err != nil {
			return err
		}
		c.discardSamples()
	}
	for range t.Rounds {
		for _, c := range groups {
			if err := c.work(t.Slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// percentiles returns the median of durations and their 99th percentile.
func percentiles(times []time.Duration) (p50, p99 time.Duration) {
	n := len(times)
	if n == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return times[n/2], times[n*99/100]
}
