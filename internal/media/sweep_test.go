package media

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
)

// sweep sweeps until nothing is left to do.
func (w *world) sweep() {
	w.t.Helper()
	for range 20 {
		if err := w.Sweep(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// there tells whether the place has a file or a draft of a name.
func (w *world) there(name string) bool {
	w.t.Helper()
	for after := ""; ; {
		list, next, err := w.place.List(w.t.Context(), after, 100)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, entry := range list {
			if entry.Name == name {
				return true
			}
		}
		if after = next; next == "" {
			return false
		}
	}
}

// keys counts what the store has.
func (w *world) keys() (n int) {
	w.t.Helper()
	err := w.store.View(w.t.Context(), func(r storage.Reader) error {
		n = 0
		return r.Scan(nil, nil, func([]byte, []byte) bool { n++; return true })
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// code is what a file is refused with.
func (w *world) code(name string) string {
	w.t.Helper()
	file, err := w.Open(w.t.Context(), name)
	if err == nil {
		_ = file.Close()
		return "200"
	}
	if f, is := errors.AsType[*fault.Fault](err); is {
		return fmt.Sprint(f.Status())
	}
	if errors.Is(err, ErrGone) {
		return "410"
	}
	return err.Error()
}

// TestTheLifeOfAFile, by the clock of the store: 7 days there, gone until 90 days,
// and unknown from then on.
func TestTheLifeOfAFile(t *testing.T) {
	anywhere(t, func(t *testing.T, w *world) {
		o := newOrigin(t, film(1000))
		name, _ := parts(t, w.allow(o).keep(of("task_a", o.URL))[0])
		for _, step := range []struct {
			to    time.Duration // since it was kept
			code  string
			there bool
		}{
			{0, "200", true},
			{Retention - time.Millisecond, "200", true},
			{Retention, "410", false},
			{task.DefaultKept - time.Millisecond, "410", false},
			{task.DefaultKept, "404", false},
		} {
			w.clock.Store(w.keptAt(name, w.clock.Load()) + step.to.Milliseconds())
			w.sweep()
			if code, there := w.code(name), w.there(name); code != step.code || there != step.there {
				t.Errorf("after %v: %s, in its place: %t", step.to, code, there)
			}
			w.sound()
		}
		if n := w.keys(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
		if s := w.Stats(); s.Removed != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// keptAt is when a file was kept, which its record tells as long as there is one.
func (w *world) keptAt(name string, otherwise int64) (at int64) {
	at = otherwise
	_ = w.store.View(w.t.Context(), func(r storage.Reader) error {
		if rec, _ := files.Get(r, name); rec != nil {
			at = rec.Kept
		}
		return nil
	})
	return at
}

// TestRecordsAreKeptAsLongAsTasksAre, also when that is changed meanwhile.
func TestRecordsAreKeptAsLongAsTasksAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Dir(t.TempDir(), 1))
	o := newOrigin(t, film(1000))
	name, _ := parts(t, w.allow(o).keep(of("task_a", o.URL))[0])
	w.sleep(20 * 24 * time.Hour)
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

// TestDraftsThatNobodyGoesOnWith are removed with all that leads to them, after
// longer than anybody tries, and not while somebody does.
func TestDraftsThatNobodyGoesOnWith(t *testing.T) {
	anywhere(t, func(t *testing.T, w *world) {
		o := newOrigin(t, film(12<<20))
		o.with(func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 1 {
				o.cut(w, 7<<20)
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
		w.allow(o).refuses(of("task_a", o.URL), "502")
		name := w.nameOf("task_a", 0)
		w.sleep(draftFor - time.Millisecond)
		w.sweep()
		if !w.there(name) {
			t.Fatal("the draft is gone too early")
		}
		w.sleep(time.Millisecond)
		leave, err := w.work.Lock(t.Context(), "task_a")
		if err != nil {
			t.Fatal(err)
		}
		w.sweep()
		if !w.there(name) {
			t.Fatal("the draft is gone while somebody works on it")
		}
		leave()
		w.sweep()
		if w.there(name) || w.keys() != 0 {
			t.Errorf("left: %d keys, the draft: %t", w.keys(), w.there(name))
		}
		o.with(nil)
		link := w.keep(of("task_a", o.URL))[0]
		w.same(link, o.content)
	})
}

// TestWhatIsBeingWrittenIsLeftAlone, however late it is.
func TestWhatIsBeingWrittenIsLeftAlone(t *testing.T) {
	anywhere(t, func(t *testing.T, w *world) {
		goOn, begun := make(chan struct{}), make(chan struct{})
		o := newOrigin(t, film(12<<20))
		o.with(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(o.content)))
			_, _ = w.Write(o.content[:8<<20])
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-goOn
			_, _ = w.Write(o.content[8<<20:])
			return true
		})
		w.allow(o)
		kept := make(chan []string, 1)
		go func() {
			links, err := w.Keep(t.Context(), of("task_a", o.URL))
			if err != nil {
				t.Error(err)
			}
			kept <- links
		}()
		<-begun
		w.sleep(30 * 24 * time.Hour)
		w.sweep()
		close(goOn)
		links := <-kept
		if t.Failed() {
			return
		}
		w.same(links[0], o.content)
		w.sweep()
		w.same(links[0], o.content)
	})
}

// TestFilesThatNobodyKnows are removed when no store can have them any more, and
// those that the record says were removed.
func TestFilesThatNobodyKnows(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1).(*directory)
	w := newWorld(t, place)
	o := newOrigin(t, film(1000))
	known, _ := parts(t, w.allow(o).keep(of("task_a", o.URL))[0])
	now := time.UnixMilli(w.clock.Load())
	put := func(age time.Duration, suffix string) string {
		name := drawName()
		if err := os.MkdirAll(place.folder(name), 0o700); err != nil {
			t.Fatal(err)
		}
		path := place.file(name) + suffix
		if err := os.WriteFile(path, film(100), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
		return name
	}
	young, old := put(strangeAfter-time.Minute, ""), put(strangeAfter+time.Minute, "")
	youngDraft, oldDraft := put(strangeAfter-time.Minute, draftSuffix), put(strangeAfter+time.Minute, draftSuffix)
	if err := os.Chtimes(place.file(known), now.Add(-strangeAfter-time.Hour), now.Add(-strangeAfter-time.Hour)); err != nil {
		t.Fatal(err)
	}
	theirs := filepath.Join(place.folder(old), "letter.txt")
	if err := os.WriteFile(theirs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(theirs, now.Add(-time.Hour*9999), now.Add(-time.Hour*9999)); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	for name, want := range map[string]bool{known: true, young: true, old: false, youngDraft: true, oldDraft: false} {
		if got := w.there(name); got != want {
			t.Errorf("%s is there: %t, want %t", name, got, want)
		}
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("what is not ours is gone: %v", err)
	}
	w.sleep(time.Hour) // the next round is a day after this one
	w.sweep()
	if !w.there(young) {
		t.Error("a round a minute")
	}
	w.sleep(roundEvery)
	w.sweep()
	if w.there(young) || w.there(youngDraft) {
		t.Error("the next round does not come")
	}
}

// TestAFileThatIsPutBack after its end, as by a copy of the directory, is removed
// again.
func TestAFileThatIsPutBack(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1).(*directory)
	w := newWorld(t, place)
	o := newOrigin(t, film(1000))
	name, _ := parts(t, w.allow(o).keep(of("task_a", o.URL))[0])
	then := time.UnixMilli(w.clock.Load())
	w.sleep(Retention)
	w.sweep()
	if err := os.WriteFile(place.file(name), o.content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(place.file(name), then, then); err != nil {
		t.Fatal(err)
	}
	w.sleep(48 * time.Hour)
	if w.sweep(); w.there(name) {
		t.Error("it is there")
	}
}

// TestDraftsInABucketThatNobodyKnows are uploads, which cost and are not seen.
func TestDraftsInABucketThatNobodyKnows(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	place, err := S3(server.options())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, place)
	for _, age := range []time.Duration{0, strangeAfter + time.Minute} {
		draft, err := place.Draft(t.Context(), drawName(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Write(film(6 << 20)); err != nil {
			t.Fatal(err)
		}
		server.uploads[fmt.Sprintf("upload-%d", len(server.uploads))].initiated = time.Now().Add(-age)
	}
	server.objects["gateway/files/theirs.txt"] = s3object{nil, time.Unix(0, 0)}
	server.objects["other"] = s3object{nil, time.Unix(0, 0)}
	w.sweep()
	if len(server.uploads) != 1 || len(server.objects) != 2 {
		t.Errorf("%d uploads and %d objects are left", len(server.uploads), len(server.objects))
	}
}

// TestAFileThatCannotBeRemoved is tried again, does not keep others from it, and
// is not given out longer.
func TestAFileThatCannotBeRemoved(t *testing.T) {
	t.Parallel()
	place := &stubborn{Place: Dir(t.TempDir(), 1)}
	w := newWorld(t, place)
	o := newOrigin(t, film(1000))
	w.allow(o)
	stuck, _ := parts(t, w.keep(of("task_a", o.URL))[0])
	w.sleep(time.Millisecond)
	var others []string
	for i := range mostFiles {
		name, _ := parts(t, w.keep(of(fmt.Sprintf("task_%d", i), o.URL))[0])
		others = append(others, name)
	}
	place.name = stuck
	w.sleep(Retention)
	w.sweep()
	if code := w.code(stuck); code != "410" || !w.there(stuck) {
		t.Errorf("%s", code)
	}
	for _, name := range others {
		if w.there(name) {
			t.Fatal("another is there still")
		}
	}
	place.name = ""
	w.sweep()
	if !w.there(stuck) {
		t.Error("tried again at once")
	}
	w.sleep(removeAgain)
	w.sweep()
	if w.there(stuck) {
		t.Error("not tried again")
	}
}

// stubborn does not remove one file.
type stubborn struct {
	Place
	name string
}

func (s *stubborn) Remove(ctx context.Context, name string) error {
	if name == s.name {
		return errors.New("it is in use")
	}
	return s.Place.Remove(ctx, name)
}

// TestOneSweepIsBounded.
func TestOneSweepIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Dir(t.TempDir(), 1))
	const most = mostFiles + 10
	err := w.store.Update(t.Context(), func(tx storage.Txn) error {
		for i := range most {
			r := &record{Name: drawName(), Task: fmt.Sprint("task_", i), Kept: 1, GoneAt: 1 + Retention.Milliseconds(), End: 1 + Retention.Milliseconds(), MediaName: "x", Type: "image/png", Size: 1}
			if err := files.Put(tx, nil, r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	w.sweepFor = 0
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.Stats().Removed; n != mostFiles {
		t.Errorf("removed %d", n)
	}
	w.sweepFor = sweepFor
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.Stats().Removed; n != most {
		t.Errorf("removed %d", n)
	}
	w.sweep()
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys are left of most that were kept decades ago", n)
	}
}
