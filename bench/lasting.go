package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// lasting is the trial of one gateway under a long load, long enough that its
// store merges tables many times. Both samples of a pair are of that gateway:
// the first covers the seconds in which no table was written or removed, the
// second the others.
type lasting struct {
	gateway side
	job     job
}

// pair implements trial.
func (l lasting) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	s, err := b.prepare(ctx, l.gateway)
	if err != nil {
		return p, err
	}
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	o := order{Job: l.job, Lasts: b.lasts, Store: filepath.Join(s.dir, "store")}
	o.Targets[1] = target{Address: g.address, PID: g.cmd.Process.Pid, Keys: s.keys}
	if err := b.runRole(ctx, roleLoad, b.others, o, &p); err != nil {
		return p, err
	}
	return p, g.charged(ctx, l.gateway)
}

// memoryInterval is the time between two readings of a gateway's memory.
const memoryInterval = 50 * time.Millisecond

// last loads the gateway for a long time. Memory is the maximum of any second.
// It fails if no tables were merged, because then nothing was measured.
func (o order) last(ctx context.Context) (p pair, err error) {
	l := &load{order: o, target: o.Targets[1], timed: true}
	defer l.closeConnections()
	if err := l.ready(ctx); err != nil {
		return p, err
	}
	var latencies [2][]time.Duration // the 99th percentile of each second
	merged := 0
	before, err := tablesIn(o.Store)
	if err != nil {
		return p, err
	}
	ends := time.Now().Add(o.Lasts)
	latest := ends.Add(4 * o.Lasts) // on a slow machine the first merge may be late
	for now := time.Now(); now.Before(ends) || merged == 0 && now.Before(latest); now = time.Now() {
		l.discardSamples()
		watch, stop := context.WithCancel(ctx)
		peak := make(chan sample, 1)
		go func() { peak <- peakOf(watch, l.PID) }()
		err := l.saturate(ctx, time.Second)
		stop()
		largest := <-peak
		if err != nil {
			return p, err
		}
		now, err := tablesIn(o.Store)
		if err != nil {
			return p, err
		}
		at := 1
		if slices.Equal(before, now) {
			at = 0
		}
		if slices.ContainsFunc(before, func(name string) bool { return !slices.Contains(now, name) }) {
			merged++
		}
		before = now
		one, err := l.sample()
		if err != nil {
			return p, err
		}
		latencies[at] = append(latencies[at], one.P99)
		p[at].Units += one.Units
		p[at].Took += time.Second
		p[at].Own, p[at].Mapped = max(p[at].Own, largest.Own), max(p[at].Mapped, largest.Mapped)
	}
	for n := range p {
		if len(latencies[n]) == 0 || merged == 0 {
			return p, fmt.Errorf("in %s tables were merged in %d seconds, and changed in %d: this measures nothing", o.Lasts, merged, len(latencies[1]))
		}
		slices.Sort(latencies[n])
		p[n].P99 = latencies[n][len(latencies[n])/2]
	}
	p[1].Own, p[1].Mapped = max(p[0].Own, p[1].Own), max(p[0].Mapped, p[1].Mapped)
	return p, nil
}

// peakOf returns the maximum memory of a process until the context ends.
func peakOf(ctx context.Context, pid int) (p sample) {
	for {
		all, err := resident(pid)
		files, errFiles := mapped(pid)
		if errors.Join(err, errFiles) == nil {
			p.Own, p.Mapped = max(p.Own, all-files), max(p.Mapped, files)
		}
		if pause(ctx, memoryInterval) != nil {
			return p
		}
	}
}

// tablesIn returns the sorted names of the tables of a store.
func tablesIn(dir string) (tables []string, err error) {
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if strings.HasSuffix(file.Name(), ".sst") {
			tables = append(tables, file.Name())
		}
	}
	return tables, err
}
