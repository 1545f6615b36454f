package caddymodule

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/egress"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// serving are the configurations by which the tasks of a node are driven: the
// last one, and before it those that it has replaced and that have not been
// cleaned up yet. One of these is in force again when the new configuration
// does not get up.
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

// serve has tasks driven as a configuration says. Those of backends that it does
// not have wait.
func (n *Node) serve(a *App) error {
	n.serving.Lock()
	defer n.serving.Unlock()
	if err := n.drive(a, a.driven()); err != nil {
		n.restore(a) // half of it may be in force
		return err
	}
	n.serving.apps = append(n.serving.apps, a)
	n.tellAbandoned()
	return nil
}

// tellAbandoned tells the log of tasks that nobody works on any more.
func (n *Node) tellAbandoned() {
	waiting, err := n.abandoned(n.life)
	if err != nil {
		n.logger.Warn("looking for tasks of backends that are not configured", zap.Error(err))
	}
	for backend, tasks := range waiting {
		n.logger.Warn("tasks wait for a backend that is not configured any more; configure it again, if only without models, until they have ended",
			zap.String("backend", backend), zap.Int64("tasks", tasks))
	}
}

// unserve ends what serve began, before the adapters of the configuration are
// cleaned up.
func (n *Node) unserve(a *App) {
	n.serving.Lock()
	defer n.serving.Unlock()
	i := slices.Index(n.serving.apps, a)
	if i < 0 {
		return
	}
	n.serving.apps = slices.Delete(n.serving.apps, i, i+1)
	if i == len(n.serving.apps) { // else another one is in force
		n.restore(a)
	}
}

// restore puts the configuration in force that was there before a, if it still
// runs. Else nothing is begun any more at a backend, but tasks that end still do
// so by the words of a. The lock is held.
func (n *Node) restore(a *App) {
	if n.life.Err() != nil {
		return // the node is closed, and so is the engine
	}
	var driven []task.Backend
	if before := n.serving.inForce(); before != nil {
		a, driven = before, before.driven()
	}
	if err := n.drive(a, driven); err != nil {
		n.logger.Error("the tasks of a configuration that has stopped are still driven", zap.Error(err))
	}
}

// drive puts in force what a configuration says of tasks, with these backends.
func (n *Node) drive(a *App, driven []task.Backend) error {
	if err := n.Media.Serve(a.mediaConfig()); err != nil {
		return err
	}
	c := task.Config{
		Backends:   driven,
		Unfinished: int(a.Limits.UnfinishedTasks),
		Kept:       time.Duration(a.Retention.Tasks),
		Callbacks:  &callbacks{n.Directory, a.Callback.URL, a.Callback.keys, a.logger},
		Client:     a.sender,
	}
	if !a.Media.Off && a.Media.place != nil {
		c.Keeper = n.Media
	}
	return n.Tasks.Serve(c)
}

// provisionTasks makes what tasks need beside their backends.
func (a *App) provisionTasks() error {
	if err := a.Callback.provision(); err != nil {
		return err
	}
	a.sender = egress.New(a.Callback.allowed, nil).Client()
	return nil
}
