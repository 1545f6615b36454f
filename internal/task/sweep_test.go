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
	in(t, func(w *world) {
		const minutes, each = 10, 300
		for range minutes {
			w.passed(slices.Repeat([][2]int64{{w.now(), w.now()}}, each)...)
			w.sleep(time.Minute)
		}
		w.sleep(DefaultKept - minutes*time.Minute)
		for range minutes {
			w.sleep(time.Minute)
			if err := w.Sweep(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.count(Filter{}); n != 0 {
			t.Errorf("%d sweeps, a minute apart, have left %d of %d tasks", minutes, n, minutes*each)
		}
	})
}

// TestAnUnreadableTaskDoesNotStopTheSweep: the other tasks are removed.
func TestAnUnreadableTaskDoesNotStopTheSweep(t *testing.T) {
	in(t, func(w *world) {
		tasks := w.passed(slices.Repeat([][2]int64{{w.now(), w.now()}}, 5)...)
		err := w.store.Update(context.Background(), func(t storage.Txn) error {
			return t.Set(storage.Key(record.TaskPrefix, tasks[2].ID), []byte("\x01{"), time.Time{})
		})
		if err != nil {
			t.Fatal(err)
		}
		w.sleep(DefaultKept)
		if err := w.Sweep(context.Background()); err == nil {
			t.Error("the unreadable task is not reported")
		}
		if n := w.count(Filter{}); n != 1 {
			t.Errorf("%d of 5 are left", n)
		}
	})
}
