package media

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task"
)

// ranges returns the requested ranges, "" for the whole result.
func (o *origin) ranges() (list []string) {
	for _, r := range o.requests() {
		list = append(list, r.Header.Get("Range"))
	}
	return list
}

// TestInterruptedTransfers checks that a copy continues if the service can
// serve the rest of the same content, and starts again otherwise.
func TestInterruptedTransfers(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		const size, first = 12 << 20, 7 << 20
		for name, row := range map[string]struct {
			etag     string
			modified time.Time
			more     func(o *origin, w http.ResponseWriter, r *http.Request) bool // the second answer
			calls    int                                                          // of Keep, until it is kept
			ranges   []string
		}{
			"entity tag":               {etag: `"one"`, calls: 1, ranges: []string{"", "resumed"}},
			"modification time":        {modified: time.Now().Add(-time.Hour), calls: 1, ranges: []string{"", "resumed"}},
			"weak entity tag":          {etag: `W/"one"`, calls: 2, ranges: []string{"", ""}},
			"future modification time": {modified: time.Now().Add(time.Hour), calls: 2, ranges: []string{"", ""}},
			"no validator":             {calls: 2, ranges: []string{"", ""}},
			"the result changes": {etag: `"one"`, calls: 1, ranges: []string{"", "resumed"}, more: func(o *origin, w http.ResponseWriter, _ *http.Request) bool {
				o.content = append(film(size-1), 'x')
				w.Header().Set("ETag", `"two"`)
				return false
			}},
			"a range of another result": {etag: `"one"`, calls: 1, ranges: []string{"", "resumed", ""}, more: func(o *origin, w http.ResponseWriter, r *http.Request) bool {
				w.Header().Set("ETag", `"two"`)
				r.Header.Del("If-Range")
				return false
			}},
			"ranges are refused": {etag: `"one"`, calls: 1, ranges: []string{"", "resumed", ""}, more: func(_ *origin, w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
				return true
			}},
			"a range that was not requested": {etag: `"one"`, calls: 2, ranges: []string{"", "resumed", "resumed"}, more: func(_ *origin, w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-9/%d", size))
				w.WriteHeader(http.StatusPartialContent)
				_, _ = w.Write(make([]byte, 10))
				return true
			}},
			"the service is down": {etag: `"one"`, calls: 2, ranges: []string{"", "resumed", "resumed"}, more: func(_ *origin, w http.ResponseWriter, _ *http.Request) bool {
				w.WriteHeader(http.StatusBadGateway)
				return true
			}},
		} {
			t.Run(name, func(t *testing.T) {
				o := newOrigin(t, film(size))
				o.etag, o.modified = row.etag, row.modified
				o.answerWith(func(w http.ResponseWriter, r *http.Request, n int) bool {
					if n == 1 {
						if !row.modified.IsZero() {
							w.Header().Set("Last-Modified", row.modified.UTC().Format(http.TimeFormat))
						}
						o.cut(w, first)
					}
					return n == 2 && row.more != nil && row.more(o, w, r)
				})
				defer func(outer *testing.T) { w.t = outer }(w.t)
				w.t = t
				w.allow(o)
				k := keeping("task_"+name, o.URL)
				for range row.calls - 1 {
					if _, err := w.Keep(t.Context(), k); err == nil {
						t.Fatal("Keep returned no error")
					}
				}
				w.checkContent(w.keep(k)[0], o.content)
				got := o.ranges()
				for i, r := range got {
					if r != "" {
						got[i] = "resumed"
					}
				}
				if !slices.Equal(got, row.ranges) {
					t.Errorf("requested %q", o.ranges())
				}
				if left := w.recordOf("task_"+name, 0).Draft; left != (progress{}) {
					t.Errorf("%+v is left", left)
				}
			})
		}
	})
}

// keepUntil starts to keep a task in a goroutine and waits until the archive has recorded n
// durable bytes of its first result. The channel receives the error of Keep.
func (w *fixture) keepUntil(ctx context.Context, k task.Keeping, n int64) <-chan error {
	w.t.Helper()
	kept := make(chan error, 1)
	go func() {
		_, err := w.Keep(ctx, k)
		kept <- err
	}()
	for noted := int64(0); noted < n; noted = w.recordOf(k.Task, 0).Draft.Durable {
		select {
		case <-w.written:
		case err := <-kept:
			w.t.Fatalf("the copy has ended with %d recorded bytes: %v", noted, err)
		}
	}
	return kept
}

// TestADraftContinuesAfterARestart checks that another archive over the same store
// and place continues a copy. Only the last part is requested twice.
func TestADraftContinuesAfterARestart(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.draftStep = 6 << 20
		const size = 24 << 20
		o := newOrigin(t, film(size))
		o.answerWith(func(rw http.ResponseWriter, r *http.Request, n int) bool {
			if n > 1 {
				return false
			}
			rw.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = rw.Write(o.content[:22<<20])
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return true
		})
		w.allow(o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		kept := w.keepUntil(ctx, keeping("task_a", o.URL), 10<<20)
		cancel()
		if err := <-kept; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		name := w.nameOf("task_a", 0)
		left := w.recordOf("task_a", 0).Draft
		if left.Durable < 10<<20 {
			t.Fatalf("%+v is left", left)
		}
		w.start()
		link := w.keep(keeping("task_a", o.URL))[0]
		w.checkContent(link, o.content)
		if again, _ := parts(t, link); again != name {
			t.Errorf("the link has changed: %s", link)
		}
		if got := o.ranges(); len(got) != 2 || got[1] != fmt.Sprintf("bytes=%d-", left.Durable) {
			t.Errorf("requested %q", got)
		}
	})
}

// TestADraftIsRecordedDuringTheCopy checks that the progress is recorded while the copy
// runs, and not only when it fails.
func TestADraftIsRecordedDuringTheCopy(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.draftStep = 6 << 20
		const size = 32 << 20
		proceed := make(chan struct{})
		o := newOrigin(t, film(size))
		o.answerWith(func(rw http.ResponseWriter, r *http.Request, _ int) bool {
			rw.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = rw.Write(o.content[:21<<20])
			_ = http.NewResponseController(rw).Flush()
			select {
			case <-proceed:
			case <-r.Context().Done():
			}
			_, _ = rw.Write(o.content[21<<20:])
			return true
		})
		w.allow(o)
		kept := w.keepUntil(t.Context(), keeping("task_a", o.URL), 15<<20)
		close(proceed)
		if err := <-kept; err != nil {
			t.Fatal(err)
		}
	})
}

// TestAKillAfterTheLastByteRequestsNothingAgain checks kills between the last byte and the
// commit, and between the commit and its record.
func TestAKillAfterTheLastByteRequestsNothingAgain(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		const size = 10 << 20
		for name, end := range map[string]func(d Draft) error{
			"before the commit": Draft.Close,
			"after the commit":  Draft.Commit,
		} {
			o := newOrigin(t, film(size))
			w.allow(o)
			k := keeping("task_"+name, o.URL)
			files, err := w.ensureRecords(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			draft, err := w.place.Draft(t.Context(), files[0].Name, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := draft.Write(append(o.content, make([]byte, 1)...)[:size]); err != nil {
				t.Fatal(err)
			}
			durable, err := draft.Sync()
			if err != nil {
				t.Fatal(err)
			}
			d := &download{archive: w.Archive, record: files[0], source: sourceOf(w.Archive.config.Load(), k, 0)}
			p := progress{Durable: durable, Source: d.source.id(), Validator: `"one"`, Total: size, Type: "video/mp4"}
			if err := errors.Join(d.recordProgress(t.Context(), p), end(draft)); err != nil {
				t.Fatal(err)
			}
			link := w.keep(k)[0]
			w.checkContent(link, o.content)
			if n := len(o.requests()); n != 0 && durable == size || name == "after the commit" && n != 0 {
				t.Errorf("%s: %d requests", name, n)
			}
		}
	})
}

// TestAMissingDraftBeginsAgain also checks a draft of another URL.
func TestAMissingDraftBeginsAgain(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(10<<20))
		o.answerWith(func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 1 {
				o.cut(w, 6<<20)
			}
			if n == 2 {
				w.WriteHeader(http.StatusBadGateway)
			}
			return n == 2
		})
		other := newOrigin(t, film(10<<20-1)) // has the same entity tag
		w.allow(o, other)
		w.mustFail(keeping("task_a", o.URL), "502")
		w.checkContent(w.keep(keeping("task_a", other.URL))[0], other.content)
		if r := other.ranges(); len(r) != 1 || r[0] != "" {
			t.Errorf("requested %q from another URL", r)
		}

		again := newOrigin(t, film(10<<20))
		again.answerWith(o.answer)
		w.allow(again)
		w.mustFail(keeping("task_b", again.URL), "502")
		if err := w.place.Remove(t.Context(), w.nameOf("task_b", 0)); err != nil {
			t.Fatal(err)
		}
		w.checkContent(w.keep(keeping("task_b", again.URL))[0], again.content)
		if r := again.ranges(); r[len(r)-1] != "" {
			t.Errorf("requested %q", r)
		}
	})
}
