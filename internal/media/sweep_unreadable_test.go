package media

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestAnUnreadableRecordDoesNotBlockOthers checks that other files are removed
// and other records are deleted.
func TestAnUnreadableRecordDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	w.damaged = true
	o := newOrigin(t, film(1000))
	w.allow(o)
	var names []string
	for n := range 3 {
		name, _ := parts(t, w.keep(keeping(fmt.Sprint("task_", n), o.URL))[0])
		names = append(names, name)
	}
	err := w.store.Update(t.Context(), func(tx storage.Txn) error {
		return tx.Set(storage.Key(files.Name, names[0]), []byte("\x01{"), time.Time{})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.advance(Retention)
	for range 3 {
		if err := w.Sweep(t.Context()); err == nil {
			t.Error("Sweep did not report the unreadable record")
		}
	}
	for _, name := range names[1:] {
		if w.exists(name) {
			t.Error("another expired file was not removed")
		}
	}
	w.advance(task.DefaultKept)
	for range 3 {
		_ = w.Sweep(t.Context())
	}
	for _, name := range names[1:] {
		if code := w.code(name); code != "404" {
			t.Errorf("another record was not deleted: %s", code)
		}
	}
}
