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
		name, _ := parts(t, w.keep(of(fmt.Sprint("task_", n), o.URL))[0])
		names = append(names, name)
	}
	err := w.store.Update(t.Context(), func(tx storage.Txn) error {
		return tx.Set(storage.Key(files.Name, names[0]), []byte("\x01{"), time.Time{})
	})
	if err != nil {
		t.Fatal(err)
	}
	w.sleep(Retention)
	for range 3 {
		if err := w.Sweep(t.Context()); err == nil {
			t.Error("of the one that cannot be read nothing is told")
		}
	}
	for _, name := range names[1:] {
		if w.exists(name) {
			t.Error("the file of another is there after its time")
		}
	}
	w.sleep(task.DefaultKept)
	for range 3 {
		_ = w.Sweep(t.Context())
	}
	for _, name := range names[1:] {
		if code := w.code(name); code != "404" {
			t.Errorf("the record of another is there after its time: %s", code)
		}
	}
}
