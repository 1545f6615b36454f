package tasks_test

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func init() {
	caddy.RegisterModule(Counted{})
}

// Counted is a store in memory that counts how often it is read.
type Counted struct{}

// reads is the number of read transactions.
var reads atomic.Int64

type countedEngine struct{ *memory.Engine }

// View implements storage.Engine.
func (e countedEngine) View(ctx context.Context, fn func(storage.Reader) error) error {
	reads.Add(1)
	return e.Engine.View(ctx, fn)
}

// CaddyModule returns the Caddy module information.
func (Counted) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "modelgate.storage.counted", New: func() caddy.Module { return new(Counted) }}
}

// UnmarshalCaddyfile reads
//
//	storage counted
func (Counted) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	return nil
}

// Key implements storage.Opener.
func (Counted) Key() string { return "counted" }

// Open implements storage.Opener.
func (Counted) Open(context.Context) (storage.Engine, error) {
	return countedEngine{memory.New()}, nil
}

func TestPollingAFinishedTaskDoesNotReadTheStore(t *testing.T) {
	config := configOf(t.Name(), "")
	config.Storage = "counted"
	w := startWith(t, config)
	key := w.fundedKey(t)
	task := w.submit(t, key, videoPath, bodyFor(videoPath, nil)).Task_ID
	w.finish(t, key, task, succeeded("https://cdn.example/req.mp4"))

	// Without a task, only the sweeper and the driver read the store, a few times
	// a second.
	const polls, clients = 10_000, 4
	before := reads.Load()
	if before == 0 {
		t.Fatal("the engine does not count reads")
	}
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			client := http.Client{Transport: &http.Transport{}}
			defer client.CloseIdleConnections()
			for range polls / clients {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.URL(tasksPath+"/"+task), nil)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("X-Api-Key", key.Secret)
				resp, err := client.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Errorf("answered %d", resp.StatusCode)
					return
				}
			}
		})
	}
	wg.Wait()
	if n := reads.Load() - before; n > polls/100 {
		t.Errorf("%d polls have read the store %d times", polls, n)
	}
}

// Interface guards.
var (
	_ storage.Opener        = (*Counted)(nil)
	_ caddyfile.Unmarshaler = (*Counted)(nil)
)
