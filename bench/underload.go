package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// underLoad is the trial that runs the same job against two sides.
type underLoad struct {
	beside, gateway side
	job             job
}

// pair implements trial. It starts both sides and a load generator.
func (u underLoad) pair(ctx context.Context, b *bench, name string) (p pair, err error) {
	o := order{Job: u.job, Turns: b.turns}
	var (
		starts   [2]time.Duration
		gateways [2]*gateway
		profiles sync.WaitGroup
	)
	for n, side := range [2]side{u.beside, u.gateway} {
		s, err := b.prepare(ctx, side)
		if err != nil {
			return p, err
		}
		g, err := b.start(ctx, s)
		if err != nil {
			return p, err
		}
		defer g.stop()
		gateways[n], starts[n] = g, g.start
		o.Targets[n] = target{g.address, g.cmd.Process.Pid, s.keys, side.reads, s.taskPaths}
		if b.profiles != "" && u.job.Kind != idle {
			file := filepath.Join(b.profiles, name+"-"+s.name+".pprof")
			profiles.Go(func() {
				if err := g.profile(ctx, o.Turns.length(), file); err != nil {
					fmt.Fprintln(os.Stderr, "bench: profile:", err)
				}
			})
		}
	}
	err = b.runRole(ctx, roleLoad, b.others, o, &p)
	profiles.Wait()
	for n := range p {
		p[n].Start = starts[n]
	}
	if err == nil && u.gateway.reads == "" && u.gateway.finished == 0 {
		err = gateways[1].charged(ctx, u.gateway)
	}
	return p, err
}
