package ledger

import (
	"context"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// openBadger opens a Badger store in a directory, as gateways do.
func openBadger(dir string, gather time.Duration) (*storage.Store, error) {
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(ctx); err != nil {
		return nil, err
	}
	engine, err := module.Open(ctx)
	if err != nil {
		return nil, err
	}
	return storage.New(engine, storage.Options{Gather: gather}), nil
}

// onBadger returns a ledger over a new Badger store with the system clock.
func onBadger(t testing.TB, dir string, gather time.Duration, opts Options) *fixture {
	t.Helper()
	store, err := openBadger(dir, gather)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := Open(t.Context(), store, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(context.Background()) })
	return &fixture{l, t, store, storagetest.NewClock(time.Now())}
}
