package media

import (
	"errors"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestTheLifetimeOfAFile checks that a file is available for 7 days, gone until 90
// days, and unknown afterwards, by the clock of the store.
func TestTheLifetimeOfAFile(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(1000))
		name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
		for _, step := range []struct {
			to     time.Duration // since it was kept
			code   string
			exists bool
		}{
			{0, "200", true},
			{Retention - time.Millisecond, "200", true},
			{Retention, "410", false},
			{task.DefaultKept - time.Millisecond, "410", false},
			{task.DefaultKept, "404", false},
		} {
			w.clock.Store(w.keptAt(name, w.clock.Load()) + step.to.Milliseconds())
			w.sweep()
			if code, exists := w.code(name), w.exists(name); code != step.code || exists != step.exists {
				t.Errorf("after %v: status %s, the file exists: %t", step.to, code, exists)
			}
			w.verify()
		}
		if n := w.keys(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		if s := w.Stats(); s.Removed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// keptAt returns when a file was kept, or the default if it has no record.
func (w *fixture) keptAt(name string, byDefault int64) (at int64) {
	at = byDefault
	_ = w.store.View(w.t.Context(), func(r storage.Reader) error {
		if rec, _ := files.Get(r, name); rec != nil {
			at = rec.Kept
		}
		return nil
	})
	return at
}

// TestRecordsAreKeptAsLongAsTasks also checks a change of the retention.
func TestRecordsAreKeptAsLongAsTasks(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	o := newOrigin(t, film(1000))
	name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
	w.advance(20 * 24 * time.Hour)
	w.sweep()
	if code := w.code(name); code != "410" {
		t.Errorf("after 20 of 90 days: %s", code)
	}
	w.serve(func(c *Config) { c.Kept = 20 * 24 * time.Hour })
	w.sweep()
	if code := w.code(name); code != "404" {
		t.Errorf("after 20 of 20 days: %s", code)
	}
}

// TestTheFilesOfADeletedTaskExpireAtOnce discards the files of one of two tasks, and a file that is
// removed already.
func TestTheFilesOfADeletedTaskExpireAtOnce(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		content := film(1000)
		o := newOrigin(t, content)
		w.allow(o)
		links := w.keep(keeping("task_1", o.URL+"/a.mp4", o.URL+"/b.mp4"))
		other := w.keep(keeping("task_2", o.URL+"/c.mp4"))
		file, err := w.OpenResult(t.Context(), "task_1", 1)
		if err != nil {
			t.Fatal(err)
		}
		name, mediaName := parts(t, links[1])
		if file.Name != name || file.MediaName != mediaName || file.Size != int64(len(content)) {
			t.Errorf("the result is %+v, want %s", file, links[1])
		}
		_ = file.Close()
		for task, index := range map[string]int{"task_1": 2, "task_3": 0} {
			if _, err := w.OpenResult(t.Context(), task, index); fault.OrInternal(err, "").Code != fault.NotFound {
				t.Errorf("result %d of %s: %v", index, task, err)
			}
		}
		for range 2 {
			if err := w.Discard(t.Context(), "task_1"); err != nil {
				t.Fatal(err)
			}
			if _, err := w.OpenResult(t.Context(), "task_1", 0); !errors.Is(err, ErrGone) {
				t.Errorf("a discarded result: %v", err)
			}
			for _, link := range links {
				if name, _ := parts(t, link); w.code(name) != "410" {
					t.Errorf("a discarded file: %s", w.code(name))
				}
			}
			w.verify()
			w.sweep()
			if w.exists(name) {
				t.Error("a discarded file is kept")
			}
			w.verify()
			w.advance(time.Hour)
		}
		w.checkContent(other[0], content)
	})
}
