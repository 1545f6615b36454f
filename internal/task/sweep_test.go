package task

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestSweepKeepsUpWithSubmissions: the runtime sweeps once a minute. Five tasks a second
// are more than one transaction removes.
func TestSweepKeepsUpWithSubmissions(t *testing.T) {
	withFixture(t, func(f *fixture) {
		const minutes, each = 10, 300
		for range minutes {
			f.passed(slices.Repeat([][2]int64{{f.now(), f.now()}}, each)...)
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
			t.Errorf("%d sweeps, a minute apart, have left %d of %d tasks", minutes, n, minutes*each)
		}
	})
}

// TestAnUnreadableTaskDoesNotStopTheSweep: the other tasks are removed.
func TestAnUnreadableTaskDoesNotStopTheSweep(t *testing.T) {
	withFixture(t, func(f *fixture) {
		tasks := f.passed(slices.Repeat([][2]int64{{f.now(), f.now()}}, 5)...)
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
			t.Errorf("%d of 5 are left", n)
		}
	})
}
