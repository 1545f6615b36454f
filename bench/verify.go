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

// lookEvery is the interval at which memory is read.
const lookEvery = 5 * time.Millisecond

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
	if err := atRest(ctx, pid); err != nil {
		return p, err
	}
	began := time.Now()
	err = p.watch(pid, func() error { return g.verify(ctx, s.entries) })
	p.Took, p.Units = time.Since(began), s.entries
	return p, err
}

// watch runs do, and records the maximum of a process's memory meanwhile and
// its growth: in all, of pages of mapped files, and of everything else.
func (s *sample) watch(pid int, do func() error) error {
	var before sample
	if err := before.look(pid); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- do() }()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var most sample
	for {
		select {
		case err := <-done:
			s.Resident = most.Resident
			s.Grown, s.Mapped, s.Own = most.Resident-before.Resident, most.Mapped-before.Mapped, most.Own-before.Own
			return err
		case <-tick.C:
			if err := most.look(pid); err != nil {
				return err
			}
		}
	}
}

// look raises the recorded memory of a process to its present value.
func (s *sample) look(pid int) error {
	all, err := resident(pid)
	if err != nil {
		return err
	}
	files, err := mapped(pid)
	s.Resident, s.Mapped, s.Own = max(s.Resident, all), max(s.Mapped, files), max(s.Own, all-files)
	return err
}

// restPatience is the longest time that a process may take to become idle.
const restPatience = time.Minute

// atRest returns when a process has used almost no CPU for a while, which means
// that its store has written and merged its tables. After it opens a store,
// Badger waits up to a second before it looks for tables to merge, so the while
// is longer than that.
func atRest(ctx context.Context, pid int) error {
	const (
		look  = 250 * time.Millisecond
		most  = look / 20 // of processor time, in between
		while = 5         // looks
	)
	ctx, cancel := context.WithTimeoutCause(ctx, restPatience, errors.New("the process does not become idle"))
	defer cancel()
	before, err := cpuTime(pid)
	for calm := 0; err == nil && calm < while; {
		if err = pause(ctx, look); err != nil {
			break
		}
		var now time.Duration
		if now, err = cpuTime(pid); now-before <= most {
			calm++
		} else {
			calm = 0
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
