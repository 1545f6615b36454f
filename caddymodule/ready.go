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

// usable has the results of the last checks of a configuration's backends.
type usable struct {
	sync.Mutex
	app      *App
	at       time.Time
	checking bool
	failed   map[string]int // number of failed checks in a row, by backend
	ended    bool           // no check begins any more
}

// endChecks lets no further check begin.
func (u *usable) endChecks() {
	u.Lock()
	defer u.Unlock()
	u.ended = true
}

// unusableAfter is the number of failed checks in a row that make a backend unusable: a
// single one may be a fault of the network.
const unusableAfter = 2

const (
	// checkInterval is the minimum time between two checks of the backends.
	checkInterval = 30 * time.Second

	// checkTimeout bounds how long a check takes.
	checkTimeout = 10 * time.Second
)

// Unusable returns an error if the configuration has no usable backend of tasks.
// A backend is not usable if it is drained, or if two checks in a row, half a minute
// apart, have failed. A backend that cannot be checked is usable.
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
	failed := runtime.checkedBackends(a)
	reasons := make([]string, 0, len(a.BackendRows))
	for _, b := range a.BackendRows {
		switch {
		case drained[b.Name]:
			reasons = append(reasons, fmt.Sprintf("backend %s: it is drained", b.Name))
		case failed[b.Name] >= unusableAfter:
			reasons = append(reasons, fmt.Sprintf("backend %s: its service does not take tasks", b.Name))
		default:
			return nil
		}
	}
	return errors.New(strings.Join(reasons, "; "))
}

// checkedBackends returns the number of failed checks in a row for each backend, and
// starts the next check when it is due. It does not wait for that check: a slow service
// must not delay a probe.
func (rt *Runtime) checkedBackends(a *App) map[string]int {
	rt.usable.Lock()
	defer rt.usable.Unlock()
	if rt.usable.app != a {
		rt.usable.app, rt.usable.at, rt.usable.failed = a, time.Time{}, nil
	}
	if !rt.usable.checking && !rt.usable.ended && rt.Store.Now().Sub(rt.usable.at) >= checkInterval {
		rt.usable.checking = true
		rt.background.Go(func() { rt.checkBackends(a) })
	}
	return rt.usable.failed
}

// checkBackends checks all backends of a configuration at once.
func (rt *Runtime) checkBackends(a *App) {
	ctx, cancel := context.WithTimeout(rt.life, checkTimeout)
	defer cancel()
	errs := make([]error, len(a.BackendRows))
	var checks sync.WaitGroup
	for i, b := range a.BackendRows {
		checks.Go(func() { _, errs[i] = rt.Tasks.Check(ctx, b.Name) })
	}
	checks.Wait()
	rt.usable.Lock()
	defer rt.usable.Unlock()
	rt.usable.checking = false
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
