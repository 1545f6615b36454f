package main

import "context"

// wholeProcess is the trial that counts all CPU time of a process, from its
// first request until it is idle again. Turns of a load do not include work
// that a process does after its answers, such as merging the tables of its
// store.
type wholeProcess struct {
	beside, gateway side
	job             job
}

// pair implements trial.
func (w wholeProcess) pair(ctx context.Context, b *bench, name string) (pair, error) {
	u := underLoad(w)
	u.job.Whole = true
	return u.pair(ctx, b, name)
}

// loadWhole loads one target after the other, each until it is idle again.
func (o order) loadWhole(ctx context.Context) (p pair, err error) {
	for n, t := range o.Targets {
		l := &load{order: o, target: t}
		defer l.closeConnections()
		if err := l.ready(ctx); err != nil {
			return p, err
		}
		before, err := cpuTime(t.PID)
		if err != nil {
			return p, err
		}
		if err := l.saturate(ctx, o.Turns.length()/2); err != nil {
			return p, err
		}
		if err := awaitIdle(ctx, t.PID); err != nil {
			return p, err
		}
		after, err := cpuTime(t.PID)
		if err != nil {
			return p, err
		}
		l.cpu = after - before
		if p[n], err = l.sample(); err != nil {
			return p, err
		}
	}
	return p, nil
}
