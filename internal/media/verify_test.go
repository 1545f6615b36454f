package media

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestVerifyFindsDamage checks that each kind of damage causes exactly one report.
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	change := func(fn func(r *record)) func(tx storage.Txn, r *record) error {
		return func(tx storage.Txn, r *record) error {
			next := *r
			fn(&next)
			return files.Put(tx, r, &next)
		}
	}
	drop := func(index ...any) func(tx storage.Txn, r *record) error {
		return func(tx storage.Txn, r *record) error {
			return tx.Delete(storage.Key(append(index, r.Name)...))
		}
	}
	add := func(key []byte) func(tx storage.Txn, r *record) error {
		return func(tx storage.Txn, _ *record) error { return tx.Set(key, []byte{}, time.Time{}) }
	}
	for text, damage := range map[string]func(tx storage.Txn, r *record) error{
		"its key of mediatask is missing": drop("mediatask", "task_a", int64(0)),
		"its key of mediaend is missing": func(tx storage.Txn, r *record) error {
			return tx.Delete(storage.Key("mediaend", r.End, r.Name))
		},
		"mediatask matches no record": add(storage.Key("mediatask", "task_x", int64(0), newName())),
		"mediaend matches no record":  add(storage.Key("mediaend", int64(5), newName())),
		"mediapast matches no record": add(storage.Key("mediapast", int64(5), newName())),
		"type is not served":          change(func(r *record) { r.Type = "text/html" }),
		"without a name":              change(func(r *record) { r.MediaName = "" }),
		"without content":             change(func(r *record) { r.Size = 0 }),
		"expiry does not match":       change(func(r *record) { r.GoneAt++ }),
		"copy is not complete":        change(func(r *record) { r.Draft.Durable = 1 }),
		"not the result of a task":    change(func(r *record) { r.Index = -1 }),
		"its draft has no end":        change(func(r *record) { r.Kept = 0 }),
		"under the key of another record": func(tx storage.Txn, r *record) error {
			return storage.SetRecord(tx, storage.Key(files.Name, newName()), r)
		},
		"cannot be read": func(tx storage.Txn, _ *record) error {
			return tx.Set(storage.Key(files.Name, newName()), []byte("x"), time.Time{})
		},
	} {
		w := newFixture(t, Dir(t.TempDir(), 1))
		o := newOrigin(t, film(1000))
		w.allow(o).keep(keeping("task_a", o.URL))
		if found := w.problems(); len(found) != 0 {
			t.Fatal(found)
		}
		w.damaged = true
		have := w.recordOf("task_a", 0)
		if err := w.store.Update(t.Context(), func(tx storage.Txn) error { return damage(tx, have) }); err != nil {
			t.Fatal(err)
		}
		found := w.problems()
		if len(found) != 1 || !strings.Contains(found[0], text) || strings.Contains(found[0], have.Name) {
			t.Errorf("%s: found %q", text, found)
		}
	}
}
