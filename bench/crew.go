package main

import (
	"os"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crew are goroutines that do one thing again and again.
type crew struct {
	hands  int                 // how many do it at once
	do     func(n int64) error // n is different each time
	timed  bool                // note how long each time takes
	users  int                 // for whom it is done, in turn; zero: it is for nobody
	last   atomic.Int64
	sample sample

	mu   sync.Mutex
	took []time.Duration // in no order
}

// forget begins anew after warming up.
func (c *crew) forget() { c.sample, c.took = sample{}, nil }

// workOff has it done so many times in all.
func (c *crew) workOff(times int64) error {
	var (
		crew   sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for range c.hands {
		crew.Go(func() {
			for n := c.last.Add(1) - 1; n < times && failed.Load() == nil; n = c.last.Add(1) - 1 {
				if err := c.do(n); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	crew.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// work has it done for a while, and counts what was done until the last hand has
// ended.
func (c *crew) work(d time.Duration) error {
	var (
		crew   sync.WaitGroup
		failed atomic.Pointer[error]
		before = c.last.Load()
		began  = time.Now()
	)
	spent, err := cpuTime(os.Getpid())
	if err != nil {
		return err
	}
	for range c.hands {
		crew.Go(func() {
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
	crew.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	c.sample.Units += c.last.Load() - before
	c.sample.Took += time.Since(began)
	now, err := cpuTime(os.Getpid())
	c.sample.CPU += now - spent
	return err
}

// alternate lets crews take turns, after each has warmed up, and has been at work
// for everybody once: what is done for somebody the first time reads the books of
// his, which are in memory from then on. A CPU profile of all of that goes to a
// file, unless its name is empty.
func alternate(t turns, profile string, crews ...*crew) error {
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
	for _, c := range crews {
		if err := c.workOff(int64(c.users)); err != nil {
			return err
		}
		if err := c.work(t.Warm); err != nil {
			return err
		}
		c.forget()
	}
	for range t.Rounds {
		for _, c := range crews {
			if err := c.work(t.Slice); err != nil {
				return err
			}
		}
	}
	return nil
}

// percentiles are the median of some times, and that which one of a hundred
// exceeds.
func percentiles(times []time.Duration) (p50, p99 time.Duration) {
	n := len(times)
	if n == 0 {
		return 0, 0
	}
	slices.Sort(times)
	return times[n/2], times[n*99/100]
}
