package task

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestSweepKeepsUpWithSubmissions sweeps once a minute, as the runtime does. Five tasks a second
// are more than one transaction removes.
func TestSweepKeepsUpWithSubmissions(t *testing.T) {
	withFixture(t, func(f *fixture) {
		const minutes, each = 10, 300
		for range minutes {
			f.insertFinished(slices.Repeat([][2]int64{{f.now(), f.now()}}, each)...)
			f.sleep(time.Minute)
		}
		f.sleep(DefaultKept - minutes*time.Minute)
		for range minutes {
			f.sleep(time.Minute)
			if err := f.Sweep(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if n := f.count(Filter{}); n != 0 {
			t.Errorf("%d of %d tasks are left after %d sweeps", n, minutes*each, minutes)
		}
	})
}

// TestAnUnreadableTaskDoesNotStopTheSweep checks that the other tasks are removed.
func TestAnUnreadableTaskDoesNotStopTheSweep(t *testing.T) {
	withFixture(t, func(f *fixture) {
		tasks := f.insertFinished(slices.Repeat([][2]int64{{f.now(), f.now()}}, 5)...)
		err := f.store.Update(context.Background(), func(t storage.Txn) error {
			return t.Set(storage.Key(record.TaskPrefix, tasks[2].ID), []byte("\x01{"), time.Time{})
		})
		if err != nil {
			t.Fatal(err)
		}
		f.sleep(DefaultKept)
		if err := f.Sweep(context.Background()); err == nil {
			t.Error("the unreadable task is not reported")
		}
		if n := f.count(Filter{}); n != 1 {
			t.Errorf("%d of 5 tasks are left, want 1", n)
		}
	})
}
