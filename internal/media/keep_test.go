package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

func TestResultsAreKeptAndServed(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		short, long := newOrigin(t, film(300)), newOrigin(t, film(11<<20+7)) // less than is sniffed; three parts of an upload
		w.allow(short, long)
		k := keeping("task_a", short.URL+"/x?signature=secret", long.URL)
		links := w.keep(k)
		if len(links) != 2 || links[0] == links[1] {
			t.Fatalf("%v", links)
		}
		w.checkContent(links[0], short.content)
		w.checkContent(links[1], long.content)
		if _, name := parts(t, links[1]); name != "video-2.mp4" {
			t.Errorf("the media name is %q", name)
		}
		again := w.keep(k)
		w.start()
		if third := w.keep(k); again[0] != links[0] || again[1] != links[1] || third[0] != links[0] || third[1] != links[1] {
			t.Errorf("%v, then %v and %v", links, again, third)
		}
		if len(short.requests()) != 1 || len(long.requests()) != 1 {
			t.Errorf("%d and %d requests", len(short.requests()), len(long.requests()))
		}
		for name, values := range short.requests()[0].Header {
			switch name {
			case "User-Agent", "Accept", "Accept-Encoding":
			default:
				t.Errorf("the request has the header %s: %q", name, values)
			}
		}
	})
}

func TestAFileIsReadInRanges(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(17<<20))
		name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
		file, err := w.Open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		for _, span := range [][2]int64{{0, 1}, {17<<20 - 1, 1}, {8<<20 - 3, 9}, {5, 100}, {5, 10 << 20}, {0, 17 << 20}} {
			if at, err := file.Seek(span[0], io.SeekStart); err != nil || at != span[0] {
				t.Fatal(at, err)
			}
			got := make([]byte, span[1])
			if _, err := io.ReadFull(file, got); err != nil || string(got) != string(o.content[span[0]:span[0]+span[1]]) {
				t.Errorf("%d bytes from offset %d are wrong: %v", span[1], span[0], err)
			}
		}
		if at, err := file.Seek(-2, io.SeekEnd); err != nil || at != 17<<20-2 {
			t.Error(at, err)
		}
		if at, err := file.Seek(1, io.SeekCurrent); err != nil || at != 17<<20-1 {
			t.Error(at, err)
		}
		if rest, err := io.ReadAll(file); err != nil || len(rest) != 1 {
			t.Error(rest, err)
		}
		if _, err := file.Seek(-1, io.SeekStart); err == nil {
			t.Error("Seek to a negative offset returned no error")
		}
	})
}

func TestAFileIsServedForSevenDays(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(1000))
		link := w.allow(o).keep(keeping("task_a", o.URL))[0]
		name, _ := parts(t, link)
		w.advance(Retention - time.Millisecond)
		w.checkContent(link, o.content)
		w.advance(time.Millisecond)
		if _, err := w.Open(t.Context(), name); !errors.Is(err, ErrGone) {
			t.Errorf("after seven days: %v", err)
		}
		w.mustFail(keeping("task_a", o.URL), "older")
	})
}

func TestUnknownNamesAreNotFound(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(1000)).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool { w.WriteHeader(404); return true })
		w.allow(o).mustFail(keeping("task_a", o.URL), "answers 404")
		_, err := w.Open(t.Context(), w.nameOf("task_a", 0)) // the name exists, but the file is not kept yet
		for name, err := range map[string]error{
			"not kept": err, "unknown": second(w.Open(t.Context(), newName())), "empty": second(w.Open(t.Context(), "")),
			"a path": second(w.Open(t.Context(), "../../etc/passwd")), "upper case": second(w.Open(t.Context(), strings.ToUpper(newName()))),
		} {
			if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Code != fault.NotFound || f.Status() != 404 {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// nameOf returns the file name of a result.
func (w *fixture) nameOf(task string, index int) string {
	w.t.Helper()
	return w.recordOf(task, index).Name
}

func TestALostFileIsGone(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(1000))
		name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
		if err := w.place.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Open(t.Context(), name); !errors.Is(err, ErrGone) {
			t.Errorf("%v", err)
		}
	})
}

// TestATruncatedFileIsNotServed checks a file that is shorter than the size in its
// record.
func TestATruncatedFileIsNotServed(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1).(*directory)
	w := newFixture(t, place)
	o := newOrigin(t, film(1000))
	name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
	if err := os.Truncate(place.file(name), 999); err != nil {
		t.Fatal(err)
	}
	if code := w.code(name); code != "410" {
		t.Errorf("Open returns %s, want 410", code)
	}
}

func TestWithoutAPlaceNoFileIsCopiedOrRemoved(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(1000))
		link := w.allow(o).keep(keeping("task_a", o.URL))[0]
		name, _ := parts(t, link)
		w.serve(func(c *Config) { c.Place = nil })
		w.mustFail(keeping("task_a", o.URL), "no place")
		w.advance(time.Hour)
		if err := w.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		_, err := w.Open(t.Context(), name)
		if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Code != fault.StoreUnavailable || f.RetryAfter == 0 {
			t.Errorf("%v", err)
		}
		w.serve(func(c *Config) { c.Place = w.place })
		w.checkContent(link, o.content)
	})
}

// TestTheLifetimeBeginsWithTheFirstRecord checks that a second copy by another
// process does not extend the lifetime.
func TestTheLifetimeBeginsWithTheFirstRecord(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	o := newOrigin(t, film(1000))
	k := keeping("task_a", o.URL)
	w.allow(o).keep(k)
	first := *w.recordOf("task_a", 0)
	w.advance(time.Hour)
	mov, _ := kindOf("video/quicktime")
	if again, err := w.recordKept(t.Context(), k, &first, mov, 7); err != nil || *again != first {
		t.Errorf("%+v, %v, want %+v", again, err, first)
	}
}

// TestBytesOfABackend checks results without a URL, whose bytes the backend
// returns.
func TestBytesOfABackend(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		content := film(6 << 20)
		for size, text := range map[int64]string{int64(len(content)): "", -1: "", 0: "", int64(len(content)) + 1: "interrupted", int64(len(content)) - 1: "longer"} {
			k := keeping(fmt.Sprintf("task_%d", size), "")
			k.Fetch = func(_ context.Context, index int) (io.ReadCloser, backends.Content, error) {
				if index != 0 {
					t.Errorf("fetched %d", index)
				}
				return io.NopCloser(strings.NewReader(string(content))), backends.Content{Type: "text/html", Size: size}, nil
			}
			if text != "" {
				w.mustFail(k, text)
				continue
			}
			link := w.keep(k)[0]
			w.checkContent(link, content)
		}
		k := keeping("task_none", "")
		k.Fetch = func(context.Context, int) (io.ReadCloser, backends.Content, error) {
			return nil, backends.Content{}, &backends.Error{Kind: backends.Busy, Message: "later"}
		}
		w.mustFail(k, "later")
	})
}

// TestConcurrentKeepsCopyOnce checks that the second Keep waits and finds the
// copy.
func TestConcurrentKeepsCopyOnce(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		arrived, proceed := make(chan struct{}, 9), make(chan struct{})
		o := newOrigin(t, film(100_000)).answerWith(func(http.ResponseWriter, *http.Request, int) bool {
			arrived <- struct{}{}
			<-proceed
			return false
		})
		w.allow(o)
		var all sync.WaitGroup
		links := make([][]string, 4)
		for i := range links {
			all.Go(func() { links[i], _ = w.Keep(t.Context(), keeping("task_a", o.URL, o.URL)) })
		}
		<-arrived
		<-arrived // both results are requested at once
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := w.Keep(ended, keeping("task_a", o.URL, o.URL)); !errors.Is(err, context.Canceled) {
			t.Errorf("a Keep with a cancelled context: %v", err)
		}
		close(proceed)
		all.Wait()
		for _, l := range links {
			if len(l) != 2 || l[0] != links[0][0] || l[1] != links[0][1] {
				t.Errorf("%v", links)
			}
		}
		if n := len(o.requests()); n != 2 {
			t.Errorf("%d requests for 2 results", n)
		}
	})
}

func TestOneFailedResultDoesNotAffectTheOther(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		bad := newOrigin(t, film(1000)).answerWith(func(w http.ResponseWriter, _ *http.Request, n int) bool {
			if n == 1 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
			return n == 1
		})
		good := newOrigin(t, film(2000))
		w.allow(bad, good)
		w.mustFail(keeping("task_a", bad.URL, good.URL), "result 1: the service of the result answers 503")
		first := w.nameOf("task_a", 1)
		links := w.keep(keeping("task_a", bad.URL, good.URL))
		w.checkContent(links[0], bad.content)
		w.checkContent(links[1], good.content)
		if name, _ := parts(t, links[1]); name != first || len(good.requests()) != 1 {
			t.Errorf("%s after %s, %d requests", name, first, len(good.requests()))
		}
		if s := w.Stats(); s != (Stats{Copies: 2, Bytes: 3000, Failures: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestInvalidConfigurations(t *testing.T) {
	t.Parallel()
	a := Open(nil, Options{})
	for text, c := range map[string]Config{
		"base_url":           {Place: Dir(t.TempDir(), 1)},
		"absolute http":      {Place: Dir(t.TempDir(), 1), BaseURL: "gateway.example.com"},
		"user":               {Place: Dir(t.TempDir(), 1), BaseURL: "https://a@gateway.example.com"},
		"media.max_file: 34": {Place: Dir(t.TempDir(), 1), BaseURL: baseURL, MaxFile: LargestFile + 1},
		"media.max_file: -1": {MaxFile: -1},
		"retention":          {Kept: -1},
		"is a directo":       {Place: Dir("/dev/null/x", 1), BaseURL: baseURL},
	} {
		err := a.Serve(c)
		if text == "is a directo" {
			text = "not a directory"
		}
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := a.Serve(Config{Place: Dir(t.TempDir(), 1), BaseURL: baseURL + "/"}); err != nil {
		t.Error(err)
	}
}

func TestKeepWithoutResults(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		if links, err := w.Keep(t.Context(), task.Keeping{Task: "task_a"}); err != nil || len(links) != 0 {
			t.Errorf("%v, %v", links, err)
		}
	})
}
