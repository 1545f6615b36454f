package task

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// corrupt replaces the record of a task by one that cannot be decoded. Before, it waits until the engine
// has noted the answer of the backend, which it would otherwise try to note until it ends.
func (f *fixture) corrupt(id string) {
	f.t.Helper()
	synctest.Wait()
	f.damaged = true
	err := f.store.Update(context.Background(), func(t storage.Txn) error {
		return t.Set(storage.Key(record.TaskPrefix, id), []byte("\x01{"), time.Time{})
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestAnUnreadableTaskDoesNotStopOthersFromExpiring checks that the holds of other tasks end.
func TestAnUnreadableTaskDoesNotStopOthersFromExpiring(t *testing.T) {
	for _, corrupted := range []int{0, 2} { // running, waiting
		t.Run(fmt.Sprint(corrupted), func(t *testing.T) {
			withFixture(t, func(f *fixture) {
				f.serve(func(c *Config) { c.Backends[0].MaxRunning = 2 })
				all := []*record.Task{f.mustSubmit(video()), f.mustSubmit(video()), f.mustSubmit(video())}
				f.sleep(5 * time.Second)
				f.serve(func(c *Config) { c.Backends = nil })
				f.sleep(200 * time.Hour)
				f.corrupt(all[corrupted].ID)
				if err := f.Sweep(context.Background()); corrupted == 0 && err == nil {
					t.Error("the unreadable task is not reported")
				}
				for i, one := range all {
					if i != corrupted {
						if rec := f.record(one.ID); !rec.Over() {
							t.Errorf("task %d is still %s", i, rec.State)
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
		f.corrupt(all[2].ID) // waits
		f.service.succeed(1)
		f.sleep(time.Hour)
		for i, one := range all[:2] {
			if rec := f.record(one.ID); !rec.Over() {
				t.Errorf("task %d is %s", i, rec.State)
			}
		}
	})
}
