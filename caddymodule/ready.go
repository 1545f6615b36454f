package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

// usable caches which backends of a configuration would take a job, as they last
// answered.
type usable struct {
	sync.Mutex
	app    *App // whose backends these are
	at     time.Time
	asking bool
	failed map[string]int // by name, how often they would not, in a row
}

// mostFailed is how many failures in a row make a backend unusable: a single one may be
// a fault of the network.
const mostFailed = 2

const (
	// askEvery is the least time between two checks of the backends.
	askEvery = 30 * time.Second

	// askPatience bounds how long a check takes.
	askPatience = 10 * time.Second
)

// Unusable returns an error if the configuration has no usable backend of tasks.
// A backend cannot be used if it is drained, or if two checks in a row, half a minute
// apart, have failed. A backend that cannot be checked can be used.
func (a *App) Unusable(ctx context.Context, runtime *Runtime) error {
	if len(a.BackendRows) == 0 {
		return errors.New("no backend is configured")
	}
	statuses, err := runtime.Tasks.Backends(ctx)
	if err != nil {
		return fmt.Errorf("backends: %w", err)
	}
	drained := make(map[string]bool)
	for _, status := range statuses {
		drained[status.Name] = status.Drained
	}
	failed := runtime.asked(a)
	reasons := make([]string, 0, len(a.BackendRows))
	for _, b := range a.BackendRows {
		switch {
		case drained[b.Name]:
			reasons = append(reasons, fmt.Sprintf("backend %s: it is drained", b.Name))
		case failed[b.Name] >= mostFailed:
			reasons = append(reasons, fmt.Sprintf("backend %s: its service does not take tasks", b.Name))
		default:
			return nil
		}
	}
	return errors.New(strings.Join(reasons, "; "))
}

// asked returns how often each backend has failed in a row, and starts the next check
// when it is due. It does not wait for the answers: a slow service must not delay a
// probe.
func (rt *Runtime) asked(a *App) map[string]int {
	rt.usable.Lock()
	defer rt.usable.Unlock()
	if rt.usable.app != a {
		rt.usable.app, rt.usable.at, rt.usable.failed = a, time.Time{}, nil
	}
	if !rt.usable.asking && rt.Store.Now().Sub(rt.usable.at) >= askEvery {
		rt.usable.asking = true
		go rt.ask(a)
	}
	return rt.usable.failed
}

// ask checks all backends of a configuration at once.
func (rt *Runtime) ask(a *App) {
	ctx, cancel := context.WithTimeout(rt.life, askPatience)
	defer cancel()
	errs := make([]error, len(a.BackendRows))
	var answers sync.WaitGroup
	for i, b := range a.BackendRows {
		answers.Go(func() { _, errs[i] = rt.Tasks.Check(ctx, b.Name) })
	}
	answers.Wait()
	rt.usable.Lock()
	defer rt.usable.Unlock()
	rt.usable.asking = false
	if rt.usable.app != a || rt.life.Err() != nil {
		return
	}
	failed := make(map[string]int)
	for i, b := range a.BackendRows {
		if errs[i] != nil {
			failed[b.Name] = rt.usable.failed[b.Name] + 1
			rt.logger.Warn("a backend does not take tasks", zap.String("backend", b.Name), zap.Error(errs[i]))
		}
	}
	rt.usable.at, rt.usable.failed = rt.Store.Now(), failed
}
