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
func (f *fixture) spoil(id string) {
	f.t.Helper()
	f.damaged = true
	err := f.store.Update(context.Background(), func(t storage.Txn) error {
		return t.Set(storage.Key(record.TaskPrefix, id), []byte("\x01{"), time.Time{})
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestAnUnreadableTaskDoesNotStopOthersFromExpiring: their money must not be held for ever.
func TestAnUnreadableTaskDoesNotStopOthersFromExpiring(t *testing.T) {
	for _, spoilt := range []int{0, 2} { // running, waiting
		t.Run(fmt.Sprint(spoilt), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
				all := []*record.Task{f.mustSubmit(video()), f.mustSubmit(video()), f.mustSubmit(video())}
				f.sleep(5 * time.Second)
				f.serve(func(c *Config) { c.Backends = nil })
				f.sleep(200 * time.Hour)
				f.spoil(all[spoilt].ID)
				if err := f.Sweep(context.Background()); spoilt == 0 && err == nil {
					t.Error("the unreadable task is not reported")
				}
				for i, one := range all {
					if i != spoilt {
						if rec := f.record(one.ID); !rec.Over() {
							t.Errorf("task %d stays %s, and its money held", i, rec.State)
						}
					}
				}
			})
		})
	}
}

func TestAnUnreadableTaskDoesNotStopOthersFromBeingProcessed(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
		all := []*record.Task{f.mustSubmit(video()), f.mustSubmit(video()), f.mustSubmit(video())}
		f.sleep(5 * time.Second)
		f.spoil(all[2].ID) // waits
		f.service.succeed(1)
		f.sleep(time.Hour)
		for i, one := range all[:2] {
			if rec := f.record(one.ID); !rec.Over() {
				t.Errorf("task %d is %s", i, rec.State)
			}
		}
	})
}
