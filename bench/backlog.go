package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

// atService is the number of tasks of a backlog that run at the mock service;
// the others wait.
const atService = 8

// waiting returns a gateway with this many unfinished tasks.
func waiting(tasks int64) side {
	return side{name: fmt.Sprintf("waiting-%d", tasks), caddyfile: tasksCaddyfile, backlog: int(tasks), running: atService}
}

// taskSeed is the order of the role that fills a store with tasks.
type taskSeed struct{ Tasks int }

// backlogKey is an API key and one of the tasks that were submitted with it.
type backlogKey struct{ Secret, Task string }

// backlogKeys is the number of API keys that own the tasks, in turn.
const backlogKeys = 100

// seedTasks gives a site the store of a gateway with waiting tasks, and submits
// the first of them to the mock service.
func (b *bench) seedTasks(ctx context.Context, s *site) error {
	var keys []backlogKey
	if err := b.fill(ctx, s, roleSeedTasks, taskSeed{s.backlog}, &keys); err != nil {
		return err
	}
	for _, key := range keys {
		s.keys, s.taskPaths = append(s.keys, key.Secret), append(s.taskPaths, tasksPath+key.Task)
	}
	g, err := b.start(ctx, s)
	if err != nil {
		return err
	}
	defer g.stop()
	if err := g.awaitAdmin(ctx); err != nil {
		return err
	}
	if _, err := g.post(ctx, "/modelgate/backends/"+serviceName+"/enable", struct{}{}); err != nil {
		return err
	}
	for ends := time.Now().Add(startTimeout); ; {
		if err := g.waits(ctx, s.side); err == nil || time.Now().After(ends) {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// waits returns an error unless all tasks of a side exist and the first of them
// run at the mock service.
func (g *gateway) waits(ctx context.Context, s side) error {
	answer, err := g.get(ctx, "/modelgate/backends")
	if err != nil {
		return err
	}
	var list struct {
		Items []struct {
			Running int `json:"running"`
			Waiting int `json:"waiting"`
		} `json:"items"`
	}
	if err := json.Unmarshal(answer, &list); err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].Running != atService || list.Items[0].Waiting != s.backlog-atService {
		return fmt.Errorf("of %d tasks, %d should run at the mock service: %s", s.backlog, atService, answer)
	}
	return nil
}

// fill submits the tasks, each with its hold, to a drained backend.
func (o taskSeed) fill(ctx context.Context, b *testStore) (keys []backlogKey, err error) {
	directory, err := identity.Open(ctx, b.store, nil, discardLogger())
	if err != nil {
		return nil, err
	}
	users, ids := make([]string, backlogKeys), make([]string, backlogKeys)
	keys = make([]backlogKey, backlogKeys)
	for n := range keys {
		user, err := directory.CreateUser(ctx, "operator", userName(n))
		if err != nil {
			return nil, err
		}
		key, secret, err := directory.CreateKey(ctx, "operator", user.ID, identity.KeySpec{})
		if err != nil {
			return nil, err
		}
		users[n], ids[n], keys[n].Secret = user.ID, key.ID, secret.Reveal()
	}
	if err := b.creditEach(ctx, "wallets", len(users), users, 10_000*money.Unit); err != nil {
		return nil, err
	}
	engine := task.Open(b.store, b.ledger, task.Options{Logger: discardLogger()})
	defer engine.Close(ctx)
	if err := engine.Serve(task.Config{Unfinished: unbounded, Backends: []task.Backend{{Name: serviceName, Backend: acceptingBackend{}}}}); err != nil {
		return nil, err
	}
	if err := engine.Drain(ctx, "operator", serviceName); err != nil {
		return nil, err
	}
	c := &workers{concurrency: 64, do: func(n int64) error {
		who := int(n) % backlogKeys
		s := submission(users[who])
		s.Key, s.Job.Prompt = ids[who], endless
		t, _, err := engine.Submit(ctx, s)
		if err == nil && n >= int64(o.Tasks-backlogKeys) { // the last task of each key
			keys[who].Task = t.ID
		}
		return err
	}}
	return keys, c.doTimes(int64(o.Tasks))
}

// resting is the trial of two idle gateways, one with few waiting tasks and one
// with many. Only the tasks at the mock service are polled.
type resting struct{ few, many int64 }

// pair implements trial.
func (r resting) pair(ctx context.Context, b *bench, _ string) (p pair, err error) {
	for n, tasks := range [2]int64{r.few, r.many} {
		s, err := b.prepare(ctx, waiting(tasks))
		if err != nil {
			return p, err
		}
		if p[n], err = b.rest(ctx, s); err != nil {
			return p, err
		}
	}
	return p, nil
}

// rest starts a gateway, waits until it is idle, and observes it for a while.
// Its memory is the maximum since the start.
func (b *bench) rest(ctx context.Context, s *site) (p sample, err error) {
	g, err := b.start(ctx, s)
	if err != nil {
		return p, err
	}
	defer g.stop()
	p.Start = g.start
	if err := g.awaitAdmin(ctx); err != nil {
		return p, err
	}
	if err := g.waits(ctx, s.side); err != nil {
		return p, err
	}
	pid := g.cmd.Process.Pid
	if err := awaitIdle(ctx, pid); err != nil {
		return p, err
	}
	before, err := cpuTime(pid)
	if err != nil {
		return p, err
	}
	began := time.Now()
	for p.Took < b.turns.length() {
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return p, err
		}
		now, err := resident(pid)
		if err != nil {
			return p, err
		}
		p.Resident, p.Took = max(p.Resident, now), time.Since(began)
	}
	now, err := cpuTime(pid)
	p.CPU = now - before
	return p, err
}
