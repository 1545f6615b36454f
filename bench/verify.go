package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// verifying is the trial of two gateways that verify their ledgers, one with
// few entries and one with many.
type verifying struct{ few, many int64 }

// pair implements trial.
func (v verifying) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	for n, entries := range [2]int64{v.few, v.many} {
		s, err := b.prepare(ctx, side{name: fmt.Sprintf("ledger-%d", entries), caddyfile: gateCaddyfile, entries: entries})
		if err != nil {
			return p, err
		}
		if p[n], err = b.verify(ctx, s); err != nil {
			return p, err
		}
	}
	return p, nil
}

// memoryReadInterval is the interval between two readings of memory.
const memoryReadInterval = 5 * time.Millisecond

// verify starts a gateway and lets it verify its ledger, as an operator does.
func (b *bench) verify(ctx context.Context, s *site) (p sample, err error) {
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return p, err
	}
	pid := g.cmd.Process.Pid
	if err := awaitIdle(ctx, pid); err != nil {
		return p, err
	}
	began := time.Now()
	err = p.watch(pid, func() error { return g.verify(ctx, s.entries) })
	p.Took, p.Units = time.Since(began), s.entries
	return p, err
}

// watch calls do and records the maximum memory of a process meanwhile, and its growth. Both
// are in total, of pages of mapped files, and of everything else.
func (s *sample) watch(pid int, do func() error) error {
	var before sample
	if err := before.readMemory(pid); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(memoryReadInterval)
	defer tick.Stop()
	var peak sample
	for {
		select {
		case err := <-done:
			s.Resident = peak.Resident
			s.Grown, s.Mapped, s.Own = peak.Resident-before.Resident, peak.Mapped-before.Mapped, peak.Own-before.Own
			return err
		case <-tick.C:
			if err := peak.readMemory(pid); err != nil {
				return err
			}
		}
	}
}

// readMemory raises the recorded memory of a process to its present value.
func (s *sample) readMemory(pid int) error {
	all, err := resident(pid)
	if err != nil {
		return err
	}
	files, err := mapped(pid)
	s.Resident, s.Mapped, s.Own = max(s.Resident, all), max(s.Mapped, files), max(s.Own, all-files)
	return err
}

// idleTimeout is the longest time until a process becomes idle.
const idleTimeout = time.Minute

// awaitIdle waits until a process has used almost no CPU for some time, so that
// its store has written and merged its tables. After opening a store, Badger
// waits up to a second before it looks for tables to merge, so that time is
// longer.
func awaitIdle(ctx context.Context, pid int) error {
	const (
		interval = 250 * time.Millisecond
		maxCPU   = interval / 20 // CPU time per interval
		wanted   = 5             // quiet intervals in a row
	)
	ctx, cancel := context.WithTimeoutCause(ctx, idleTimeout, errors.New("the process does not become idle"))
	defer cancel()
	before, err := cpuTime(pid)
	for quiet := 0; err == nil && quiet < wanted; {
		if err = pause(ctx, interval); err != nil {
			break
		}
		var now time.Duration
		if now, err = cpuTime(pid); now-before <= maxCPU {
			quiet++
		} else {
			quiet = 0
		}
		before = now
	}
	return err
}

// verify returns an error unless the gateway finds no problem in a ledger of at
// least this many entries.
func (g *gateway) verify(ctx context.Context, entries int64) error {
	answer, err := g.post(ctx, "/modelgate/verify", struct{}{})
	if err != nil {
		return err
	}
	var found struct {
		Entries  int64             `json:"entries"`
		Problems []json.RawMessage `json:"problems"`
	}
	if err := json.Unmarshal(answer, &found); err != nil {
		return err
	}
	if len(found.Problems) > 0 {
		return fmt.Errorf("the ledger does not add up: %s", found.Problems[0])
	}
	if found.Entries < entries {
		return fmt.Errorf("the ledger has %d entries, not %d", found.Entries, entries)
	}
	return nil
}
