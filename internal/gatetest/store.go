package gatetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func init() {
	caddy.RegisterModule(Storage{})
}

// Storage is the storage module of a Gate: a named engine in memory with
// planned faults. Closing the engine deletes its content.
type Storage struct {
	Name string `json:"name,omitempty"`
}

// CaddyModule returns the Caddy module information.
func (Storage) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.storage.gatetest", New: func() caddy.Module { return new(Storage) }}
}

// UnmarshalCaddyfile reads
//
//	storage gatetest <name>
func (s *Storage) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	if !d.Args(&s.Name) || d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// Key implements storage.Opener.
func (s *Storage) Key() string { return "gatetest:" + s.Name }

// Now returns the time of the store's clock, which a test can advance: see
// [Gate.Wait].
func (s *Storage) Now() time.Time { return time.Now().Add(clockOf(s.Name).ahead()) }

// Open implements storage.Opener.
func (s *Storage) Open(context.Context) (storage.Engine, error) {
	inner := memory.New()
	e := &engine{Faulty: storagetest.NewFaulty(inner), Backuper: inner, closed: make(chan struct{})}
	engines.Store(s.Name, e)
	return e, nil
}

// clock is how far the clock of a store is ahead of the system's.
type clock struct{ by atomic.Int64 }

func (c *clock) ahead() time.Duration { return time.Duration(c.by.Load()) }

// clocks are the clocks of the stores by name.
var clocks sync.Map

func clockOf(name string) *clock {
	c, _ := clocks.LoadOrStore(name, new(clock))
	return c.(*clock)
}

// Wait advances the clock of the store, for the expiry of sessions, step-ups
// and codes. Limits in memory use the same clock.
func (g *Gate) Wait(d time.Duration) { clockOf(g.Store).by.Add(int64(d)) }

// Now returns the time of the store.
func (g *Gate) Now() time.Time { return time.Now().Add(clockOf(g.Store).ahead()) }

// engines are the last opened engines by name.
var engines sync.Map

// engine is an engine with faults that supports backups and signals when it is
// closed.
type engine struct {
	*storagetest.Faulty
	storage.Backuper
	closed chan struct{}
	reads  atomic.Int64 // keys that views have read
}

// View implements storage.Engine.
func (e *engine) View(ctx context.Context, fn func(storage.Reader) error) error {
	return e.Faulty.View(ctx, func(r storage.Reader) error { return fn(storagetest.CountReads(r, &e.reads)) })
}

// Reads returns the number of keys that views of the store have read since it was opened.
func (g *Gate) Reads() int64 {
	opened, _ := engines.Load(g.Store)
	return opened.(*engine).reads.Load()
}

// Close implements storage.Engine.
func (e *engine) Close() error {
	close(e.closed) // panics at a second Close, which would be an error
	return e.Faulty.Close()
}

// Space implements storage.Spacer: there is always free space.
func (e *engine) Space() (free, least uint64, err error) { return 1 << 40, 1 << 28, nil }

// Engine returns the last engine that was opened with a name, for planning
// faults, and a channel that is closed when the engine is.
func Engine(name string) (*storagetest.Faulty, <-chan struct{}) {
	opened, ok := engines.Load(name)
	if !ok {
		panic("gatetest: no engine was opened under the name " + name)
	}
	e := opened.(*engine)
	return e.Faulty, e.closed
}

// Interface guards.
var (
	_ caddyfile.Unmarshaler = (*Storage)(nil)
	_ storage.Opener        = (*Storage)(nil)
	_ storage.Backuper      = (*engine)(nil)
	_ storage.Spacer        = (*engine)(nil)
)

// SmallStore returns the option for a store in a directory that uses little
// memory.
func SmallStore(directory string) string {
	return "badger \"" + directory + "\" {\n memory small\n}"
}
