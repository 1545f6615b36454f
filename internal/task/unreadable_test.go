package task

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// spoil replaces the record of a task by one that cannot be decoded.
func (w *world) spoil(id string) {
	w.t.Helper()
	w.damaged = true
	err := w.store.Update(context.Background(), func(t storage.Txn) error {
		return t.Set(storage.Key(record.TaskPrefix, id), []byte("\x01{"), time.Time{})
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// TestAnUnreadableTaskDoesNotStopOthersFromExpiring: their money must not be held for ever.
func TestAnUnreadableTaskDoesNotStopOthersFromExpiring(t *testing.T) {
	for _, spoilt := range []int{0, 2} { // running, waiting
		t.Run(fmt.Sprint(spoilt), func(t *testing.T) {
			in(t, func(w *world) {
				w.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
				all := []*record.Task{w.must(video()), w.must(video()), w.must(video())}
				w.sleep(5 * time.Second)
				w.serve(func(c *Config) { c.Backends = nil })
				w.sleep(200 * time.Hour)
				w.spoil(all[spoilt].ID)
				if err := w.Sweep(context.Background()); spoilt == 0 && err == nil {
					t.Error("the unreadable task is not reported")
				}
				for i, one := range all {
					if i != spoilt {
						if rec := w.record(one.ID); !rec.Over() {
							t.Errorf("task %d stays %s, and its money held", i, rec.State)
						}
					}
				}
			})
		})
	}
}

func TestAnUnreadableTaskDoesNotStopOthersFromBeingProcessed(t *testing.T) {
	in(t, func(w *world) {
		w.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		all := []*record.Task{w.must(video()), w.must(video()), w.must(video())}
		w.sleep(5 * time.Second)
		w.spoil(all[2].ID) // waits
		w.service.succeed(1)
		w.sleep(time.Hour)
		for i, one := range all[:2] {
			if rec := w.record(one.ID); !rec.Over() {
				t.Errorf("task %d is %s", i, rec.State)
			}
		}
	})
}
