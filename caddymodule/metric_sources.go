package caddymodule

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/caddymodule/metrics"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// metricSources yields the sources of metrics of the open stores, by the keys of the stores.
func metricSources(yield func(store string, source metrics.Source) bool) {
	runtimes.Range(func(key, value any) bool {
		rt := value.(*Runtime)
		return yield(key.(string), metrics.Source{
			Store: rt.Store, Directory: rt.Directory, Ledger: rt.Ledger, Tasks: rt.Tasks, Media: rt.Media, Mail: rt.Mail, Detached: &rt.Detached,
			Mismatches: rt.verified.Load(), LastBackup: rt.LastBackup,
			Tolerance: func() (ledger.Tolerance, bool) {
				app, err := Active()
				if err != nil {
					return 0, false
				}
				return app.Tolerance(), true
			},
			Backlog: rt.backlog,
		})
	})
}

// backlogCache has the last count of unfinished tasks. A count reads every such task,
// and scrapes may be frequent.
type backlogCache struct {
	sync.Mutex
	at   time.Time // of the store
	last metrics.Backlog
}

const (
	countInterval = time.Minute
	countTimeout  = 5 * time.Second
)

// backlog returns a count that is at most a minute old. It returns false if the count
// failed. It blocks for at most countTimeout.
func (rt *Runtime) backlog() (metrics.Backlog, bool) {
	rt.backlogs.Lock()
	defer rt.backlogs.Unlock()
	if !rt.backlogs.at.IsZero() && rt.Store.Now().Sub(rt.backlogs.at) < countInterval {
		return rt.backlogs.last, true
	}
	ctx, cancel := context.WithTimeout(rt.life, countTimeout)
	defer cancel()
	var c metrics.Backlog
	var err error
	if c.Backlog, err = rt.Tasks.Backlog(ctx); err == nil {
		c.Abandoned, err = rt.abandoned(ctx)
	}
	if err != nil {
		rt.logger.Warn("cannot count the unfinished tasks", zap.Error(err))
		return metrics.Backlog{}, false
	}
	rt.backlogs.at, rt.backlogs.last = rt.Store.Now(), c
	return c, true
}

// abandoned returns how many tasks wait for backends that are no longer configured, by
// backend.
func (rt *Runtime) abandoned(ctx context.Context) (map[string]int64, error) {
	all, err := rt.Tasks.Backends(ctx)
	if err != nil {
		return nil, err
	}
	waiting := make(map[string]int64)
	for _, status := range all {
		if status.Abandoned() {
			waiting[status.Name] = status.Running + status.Waiting
		}
	}
	return waiting, nil
}
