package postgres

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// newOpener returns a provisioned module for a schema.
func newOpener(tb testing.TB, dsn, schema string) *Postgres {
	tb.Helper()
	p := &Postgres{DSN: settings.Secret(dsn), Schema: schema, Patience: caddy.Duration(minPatience)}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	tb.Cleanup(cancel)
	if err := errors.Join(p.Provision(ctx), p.Validate()); err != nil {
		tb.Fatal(err)
	}
	return p
}

// opened opens the engine, which nobody else has, and closes it at the end of the test.
func opened(tb testing.TB, p *Postgres) *engine {
	tb.Helper()
	e, err := p.Open(context.Background())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { e.Close() })
	return e.(*engine)
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dsn := postgrestest.Start(t).Database()
	var stores atomic.Int64
	open := func(t *testing.T) storage.Engine {
		return opened(t, newOpener(t, dsn, fmt.Sprintf("s%d", stores.Add(1))))
	}
	t.Run("engine", func(t *testing.T) { storagetest.Run(t, open) })
	t.Run("store", func(t *testing.T) { storagetest.RunStore(t, open) })
	t.Run("persistent", func(t *testing.T) {
		storagetest.RunPersistent(t, func(t *testing.T, dir string) storage.Engine {
			h := fnv.New64a()
			h.Write([]byte(dir))
			return opened(t, newOpener(t, dsn, fmt.Sprintf("p%x", h.Sum64())))
		})
	})
}

var never time.Time
