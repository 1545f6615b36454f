package gatetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/caddymodule"
)

func init() {
	caddy.RegisterModule(Rollback{})
}

// Rollback is an app that starts last and may fail, so that Caddy rolls its
// configuration back. [Gate.RollBack] and [Gate.ReloadAfter] add it.
type Rollback struct{ ctx caddy.Context }

// CaddyModule returns the Caddy module information.
func (Rollback) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: rollbackID, New: func() caddy.Module { return new(Rollback) }}
}

const rollbackID = "gatetest_rollback"

var (
	errRollback = errors.New("gatetest: this configuration is rolled back")
	errTooEarly = errors.New("gatetest: the other apps have not started yet")
)

// beforeRollback is the action of the test while the configuration runs.
var beforeRollback struct {
	sync.Mutex
	address string // of the site
	do      func()
	result  error // of Start
}

// Provision implements caddy.Provisioner.
func (r *Rollback) Provision(ctx caddy.Context) error {
	r.ctx = ctx
	return nil
}

// Start runs the test's action if modelgate and the site have started before.
// Otherwise it fails, because Caddy starts apps in random order, one at a time.
func (r *Rollback) Start() error {
	app, err := caddymodule.Of(r.ctx)
	if err != nil {
		return err
	}
	ended, end := context.WithCancel(context.Background())
	end()
	_, release, err := app.Runtime(ended)
	if errors.Is(err, context.Canceled) {
		return errTooEarly
	}
	if err == nil {
		release()
	}
	beforeRollback.Lock()
	defer beforeRollback.Unlock()
	if caddy.ListenerUsage("tcp", beforeRollback.address) < 2 { // the previous configuration has one listener
		return errTooEarly
	}
	beforeRollback.do()
	return beforeRollback.result
}

// Stop implements caddy.App.
func (*Rollback) Stop() error { return nil }

// RollBack loads a configuration that Caddy rolls back after its apps have
// started. Before the rollback it calls meanwhile.
func (g *Gate) RollBack(t testing.TB, config Config, meanwhile func()) {
	t.Helper()
	g.loadAfter(t, config, meanwhile, errRollback)
}

// ReloadAfter loads a configuration. When its apps have started, and before it
// becomes current, it calls meanwhile.
func (g *Gate) ReloadAfter(t testing.TB, config Config, meanwhile func()) {
	t.Helper()
	g.loadAfter(t, config, meanwhile, nil)
}

func (g *Gate) loadAfter(t testing.TB, config Config, meanwhile func(), end error) {
	t.Helper()
	store := g.Store
	defer func() { g.Store = store }()
	if config.Store != "" {
		g.Store = config.Store
	}
	adapted, err := Adapt(g.Caddyfile(config))
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]any
	if err := json.Unmarshal(adapted, &whole); err != nil {
		t.Fatal(err)
	}
	whole["apps"].(map[string]any)[rollbackID] = struct{}{}
	adapted, err = json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	beforeRollback.Lock()
	beforeRollback.address, beforeRollback.do, beforeRollback.result = g.Address, meanwhile, end
	beforeRollback.Unlock()
	g.reloaded = true
	const tries = 100 // each succeeds with probability 1/3
	for range tries {
		// Caddy does not wrap the errors of apps.
		switch err := caddy.Load(adapted, true); {
		case err == nil && end == nil:
			return
		case err != nil && end != nil && strings.Contains(err.Error(), end.Error()):
			return
		case err == nil || !strings.Contains(err.Error(), errTooEarly.Error()):
			t.Fatalf("loading the configuration: want %v, got %v", end, err)
		}
	}
	t.Fatal("the rollback app never started last")
}

// Interface guards.
var (
	_ caddy.App         = (*Rollback)(nil)
	_ caddy.Provisioner = (*Rollback)(nil)
)
