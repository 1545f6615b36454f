package caddymodule

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// serving has the configurations that drive the tasks of a runtime: the last one, and
// before it the replaced ones that are not cleaned up yet. If a new configuration fails
// to start, the one before it is in force again.
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

// serve makes a configuration drive the tasks. Tasks of backends that it does not have
// wait.
func (rt *Runtime) serve(a *App) error {
	rt.serving.Lock()
	defer rt.serving.Unlock()
	if err := rt.drive(a, a.driven()); err != nil {
		rt.restore(a) // half of it may be in force
		return err
	}
	rt.serving.apps = append(rt.serving.apps, a)
	rt.tellAbandoned()
	return nil
}

// tellAbandoned logs tasks whose backends are no longer configured.
func (rt *Runtime) tellAbandoned() {
	waiting, err := rt.abandoned(rt.life)
	if err != nil {
		rt.logger.Warn("looking for tasks of backends that are not configured", zap.Error(err))
	}
	for backend, tasks := range waiting {
		rt.logger.Warn("tasks wait for a backend that is not configured any more; configure it again, if only without models, until they have ended",
			zap.String("backend", backend), zap.Int64("tasks", tasks))
	}
}

// unserve ends what serve began, before the adapters of the configuration are
// cleaned up.
func (rt *Runtime) unserve(a *App) {
	rt.serving.Lock()
	defer rt.serving.Unlock()
	i := slices.Index(rt.serving.apps, a)
	if i < 0 {
		return
	}
	rt.serving.apps = slices.Delete(rt.serving.apps, i, i+1)
	if i == len(rt.serving.apps) { // else another one is in force
		rt.restore(a)
	}
}

// restore puts the configuration in force that was there before a, if it still
// runs. Else nothing is begun any more at a backend, but tasks that end still do
// so by the words of a. The lock is held.
func (rt *Runtime) restore(a *App) {
	if rt.life.Err() != nil {
		return // the runtime is closed, and so is the engine
	}
	var driven []task.Backend
	if before := rt.serving.inForce(); before != nil {
		a, driven = before, before.driven()
	}
	if err := rt.drive(a, driven); err != nil {
		rt.logger.Error("the tasks of a configuration that has stopped are still driven", zap.Error(err))
	}
}

// drive applies the task settings of a configuration, with these backends.
func (rt *Runtime) drive(a *App, driven []task.Backend) error {
	if err := rt.Media.Serve(a.mediaConfig()); err != nil {
		return err
	}
	c := task.Config{
		Backends:   driven,
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
