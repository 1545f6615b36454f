package caddymodule

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// serving has the configurations whose task settings apply to a runtime. They are the last
// one and, before it, the replaced ones that are not cleaned up yet. If a new configuration
// fails to start, the one before it is in force again.
type serving struct {
	sync.Mutex
	apps []*App
}

// inForce returns the configuration that is in force, or nil. The lock is held.
func (s *serving) inForce() *App {
	if len(s.apps) == 0 {
		return nil
	}
	return s.apps[len(s.apps)-1]
}

// serve applies the task settings of a configuration. Tasks of backends that it does not
// have wait.
func (rt *Runtime) serve(a *App) error {
	rt.serving.Lock()
	defer rt.serving.Unlock()
	if err := rt.configureTasks(a, a.taskBackends()); err != nil {
		rt.restore(a) // a part of it may be in force
		return err
	}
	rt.serving.apps = append(rt.serving.apps, a)
	rt.logAbandoned()
	return nil
}

// logAbandoned logs tasks whose backends are no longer configured.
func (rt *Runtime) logAbandoned() {
	waiting, err := rt.abandoned(rt.life)
	if err != nil {
		rt.logger.Warn("cannot read the tasks of backends that are not configured", zap.Error(err))
	}
	for backend, tasks := range waiting {
		rt.logger.Warn("tasks wait for a backend that is no longer configured; configure it again, without models, until they have ended",
			zap.String("backend", backend), zap.Int64("tasks", tasks))
	}
}

// withdraw ends the effect of serve. The caller cleans up the adapters of the
// configuration afterwards.
func (rt *Runtime) withdraw(a *App) {
	rt.serving.Lock()
	defer rt.serving.Unlock()
	i := slices.Index(rt.serving.apps, a)
	if i < 0 {
		return
	}
	rt.serving.apps = slices.Delete(rt.serving.apps, i, i+1)
	if i == len(rt.serving.apps) { // it was in force
		rt.restore(a)
	}
}

// restore puts the configuration before a in force, if it still runs. Else backends get
// no more requests, but the settings of a apply to tasks that end. The lock is held.
func (rt *Runtime) restore(a *App) {
	if rt.life.Err() != nil {
		return // the runtime is closed, and so is the engine
	}
	var list []task.Backend
	if before := rt.serving.inForce(); before != nil {
		a, list = before, before.taskBackends()
	}
	if err := rt.configureTasks(a, list); err != nil {
		rt.logger.Error("the task settings of a stopped configuration are still in force", zap.Error(err))
	}
}

// configureTasks applies the task settings of a configuration, with these backends.
func (rt *Runtime) configureTasks(a *App, list []task.Backend) error {
	if err := rt.Media.Serve(a.mediaConfig()); err != nil {
		return err
	}
	c := task.Config{
		Backends:   list,
		Unfinished: int(a.Limits.UnfinishedTasks),
		Kept:       time.Duration(a.Retention.Tasks),
		Callbacks:  &callbacks{rt.Directory, a.Callback.URL, a.Callback.keys, a.logger},
		Client:     a.sender,
	}
	if !a.Media.Off && a.Media.place != nil {
		c.Keeper = rt.Media
	}
	return rt.Tasks.Serve(c)
}

// provisionTasks provisions the callbacks and the client that sends them.
func (a *App) provisionTasks() error {
	if err := a.Callback.provision(); err != nil {
		return err
	}
	a.sender = egress.New(a.Callback.allowed, nil).Client()
	return nil
}
