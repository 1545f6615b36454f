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
	"github.com/caddy-modelgate/modelgate/storage"
)

// sweep calls Sweep until nothing is left to do.
func (w *fixture) sweep() {
	w.t.Helper()
	for range 20 {
		if err := w.Sweep(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// exists reports whether the place has a file or a draft of a name.
func (w *fixture) exists(name string) bool {
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

// keys returns the number of keys in the store.
func (w *fixture) keys() (n int) {
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

// code returns the HTTP status of opening a file, or its error if it has none.
func (w *fixture) code(name string) string {
	w.t.Helper()
	file, err := w.Open(w.t.Context(), name)
	if err == nil {
		_ = file.Close()
		return "200"
	}
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return fmt.Sprint(f.Status())
	}
	if errors.Is(err, ErrGone) {
		return "410"
	}
	return err.Error()
}

// TestAbandonedDraftsAreRemoved checks that drafts and their index keys are
// removed after the last retry, and not during a Keep.
func TestAbandonedDraftsAreRemoved(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(12<<20))
		o.answerWith(func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 1 {
				o.cut(w, 7<<20)
			}
			w.WriteHeader(http.StatusBadGateway)
			return true
		})
		w.allow(o).mustFail(keeping("task_a", o.URL), "502")
		name := w.nameOf("task_a", 0)
		w.advance(draftFor - time.Millisecond)
		w.sweep()
		if !w.exists(name) {
			t.Fatal("the draft was removed too early")
		}
		w.advance(time.Millisecond)
		unlock, err := w.work.Lock(t.Context(), "task_a")
		if err != nil {
			t.Fatal(err)
		}
		w.sweep()
		if !w.exists(name) {
			t.Fatal("the draft was removed during a copy")
		}
		unlock()
		w.sweep()
		if w.exists(name) || w.keys() != 0 {
			t.Errorf("%d keys are left; the draft exists: %t", w.keys(), w.exists(name))
		}
		o.answerWith(nil)
		link := w.keep(keeping("task_a", o.URL))[0]
		w.checkContent(link, o.content)
	})
}

// TestFilesBeingWrittenAreKept checks that Sweep keeps a draft of any age during its copy.
func TestFilesBeingWrittenAreKept(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		proceed, begun := make(chan struct{}), make(chan struct{})
		o := newOrigin(t, film(12<<20))
		o.answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", fmt.Sprint(len(o.content)))
			_, _ = w.Write(o.content[:8<<20])
			_ = http.NewResponseController(w).Flush()
			close(begun)
			<-proceed
			_, _ = w.Write(o.content[8<<20:])
			return true
		})
		w.allow(o)
		kept := make(chan []string, 1)
		go func() {
			links, err := w.Keep(t.Context(), keeping("task_a", o.URL))
			if err != nil {
				t.Error(err)
			}
			kept <- links
		}()
		<-begun
		w.advance(30 * 24 * time.Hour)
		w.sweep()
		close(proceed)
		links := <-kept
		if t.Failed() {
			return
		}
		w.checkContent(links[0], o.content)
		w.sweep()
		w.checkContent(links[0], o.content)
	})
}

// TestOrphansAreRemoved checks that old files without a record are removed, and files
// whose record says that they were removed.
func TestOrphansAreRemoved(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1).(*directory)
	w := newFixture(t, place)
	o := newOrigin(t, film(1000))
	known, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
	now := time.UnixMilli(w.clock.Load())
	put := func(age time.Duration, suffix string) string {
		name := newName()
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
	young, old := put(orphanAge-time.Minute, ""), put(orphanAge+time.Minute, "")
	youngDraft, oldDraft := put(orphanAge-time.Minute, draftSuffix), put(orphanAge+time.Minute, draftSuffix)
	if err := os.Chtimes(place.file(known), now.Add(-orphanAge-time.Hour), now.Add(-orphanAge-time.Hour)); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(place.folder(old), "letter.txt")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(foreign, now.Add(-time.Hour*9999), now.Add(-time.Hour*9999)); err != nil {
		t.Fatal(err)
	}
	w.sweep()
	for name, want := range map[string]bool{known: true, young: true, old: false, youngDraft: true, oldDraft: false} {
		if got := w.exists(name); got != want {
			t.Errorf("%s exists: %t, want %t", name, got, want)
		}
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a foreign file was removed: %v", err)
	}
	w.advance(time.Hour) // the next round is a day after this one
	w.sweep()
	if !w.exists(young) {
		t.Error("the next round begins too early")
	}
	w.advance(roundInterval)
	w.sweep()
	if w.exists(young) || w.exists(youngDraft) {
		t.Error("the next round did not remove the orphans")
	}
}

// TestARestoredFileIsRemovedAgain checks a file that a copy of the directory
// restored after its end.
func TestARestoredFileIsRemovedAgain(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1).(*directory)
	w := newFixture(t, place)
	o := newOrigin(t, film(1000))
	name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
	then := time.UnixMilli(w.clock.Load())
	w.advance(Retention)
	w.sweep()
	if err := os.WriteFile(place.file(name), o.content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(place.file(name), then, then); err != nil {
		t.Fatal(err)
	}
	w.advance(48 * time.Hour)
	if w.sweep(); w.exists(name) {
		t.Error("the restored file was not removed")
	}
}

// TestOrphanUploadsAreRemoved checks uploads, which cost money although they
// are not visible as objects.
func TestOrphanUploadsAreRemoved(t *testing.T) {
	t.Parallel()
	server := newS3(t)
	place, err := S3(server.options())
	if err != nil {
		t.Fatal(err)
	}
	w := newFixture(t, place)
	for _, age := range []time.Duration{0, orphanAge + time.Minute} {
		draft, err := place.Draft(t.Context(), newName(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Write(film(6 << 20)); err != nil {
			t.Fatal(err)
		}
		server.uploads[fmt.Sprintf("upload-%d", len(server.uploads))].initiated = time.Now().Add(-age)
	}
	server.objects["gateway/files/foreign.txt"] = s3object{nil, time.Unix(0, 0)}
	server.objects["other"] = s3object{nil, time.Unix(0, 0)}
	w.sweep()
	if len(server.uploads) != 1 || len(server.objects) != 2 {
		t.Errorf("%d uploads and %d objects are left", len(server.uploads), len(server.objects))
	}
}

// TestARemovalThatFailsIsRetried checks that a failed removal does not delay
// others, and that the file is not served longer.
func TestARemovalThatFailsIsRetried(t *testing.T) {
	t.Parallel()
	place := &undeletablePlace{Place: Dir(t.TempDir(), 1)}
	w := newFixture(t, place)
	o := newOrigin(t, film(1000))
	w.allow(o)
	stuck, _ := parts(t, w.keep(keeping("task_a", o.URL))[0])
	w.advance(time.Millisecond)
	var others []string
	for i := range maxFiles {
		name, _ := parts(t, w.keep(keeping(fmt.Sprintf("task_%d", i), o.URL))[0])
		others = append(others, name)
	}
	place.name = stuck
	w.advance(Retention)
	w.sweep()
	if code := w.code(stuck); code != "410" || !w.exists(stuck) {
		t.Errorf("the file that cannot be removed: %s", code)
	}
	for _, name := range others {
		if w.exists(name) {
			t.Fatal("another file was not removed")
		}
	}
	place.name = ""
	w.sweep()
	if !w.exists(stuck) {
		t.Error("the removal was retried at once")
	}
	w.advance(removeRetry)
	w.sweep()
	if w.exists(stuck) {
		t.Error("the removal was not retried")
	}
}

// undeletablePlace fails to remove one file.
type undeletablePlace struct {
	Place
	name string
}

func (s *undeletablePlace) Remove(ctx context.Context, name string) error {
	if name == s.name {
		return errors.New("the file is in use")
	}
	return s.Place.Remove(ctx, name)
}

func TestOneSweepIsLimited(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	const total = maxFiles + 10
	err := w.store.Update(t.Context(), func(tx storage.Txn) error {
		for i := range total {
			r := &record{Name: newName(), Task: fmt.Sprint("task_", i), Kept: 1, GoneAt: 1 + Retention.Milliseconds(), End: 1 + Retention.Milliseconds(), MediaName: "x", Type: "image/png", Size: 1}
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
	if n := w.Stats().Removed; n != maxFiles {
		t.Errorf("removed %d", n)
	}
	w.sweepFor = sweepFor
	if err := w.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.Stats().Removed; n != total {
		t.Errorf("removed %d", n)
	}
	w.sweep()
	if n := w.keys(); n != 0 {
		t.Errorf("%d keys are left, want 0", n)
	}
}
