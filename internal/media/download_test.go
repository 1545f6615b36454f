package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"code.dny.dev/ssrf"
	"go.uber.org/zap/zaptest"

	"github.com/caddy-modelgate/modelgate/backends"
)

func TestInvalidResultsAreRejected(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.serve(func(c *Config) { c.MaxFile = 1 << 20 })
		for text, o := range map[string]*origin{
			"is empty":                         newOrigin(t, nil),
			"neither a PNG, JPEG, WebP or GIF": newOrigin(t, []byte("<!doctype html><script>alert(1)</script>"+strings.Repeat(" ", 600))),
			"neither a PNG":                    newOrigin(t, []byte("%PDF-1.7")),
			"larger than 1048576 bytes (":      newOrigin(t, film(1<<20+1)),
			"larger than 1048576 bytes":        newOrigin(t, nil).answerWith(endless),
			"was interrupted": newOrigin(t, film(1000)).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.Header().Set("Content-Length", "2000")
				_, _ = w.Write(film(1000))
				return true
			}),
			"answers 204":                    newOrigin(t, nil).answerWith(status(http.StatusNoContent)),
			"answers 403":                    newOrigin(t, nil).answerWith(status(http.StatusForbidden)),
			"a range that was not requested": newOrigin(t, nil).answerWith(status(http.StatusPartialContent)),
			"compressed": newOrigin(t, film(1000)).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
				w.Header().Set("Content-Encoding", "gzip")
				return false
			}),
		} {
			o.etag = "" // without a validator, a draft cannot be continued
			w.allow(o)
			k := keeping("task_"+text, o.URL+"/?X-Signature=secret")
			err := w.mustFail(k, text)
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains the link: %v", err)
			}
			if n, err := w.place.Size(t.Context(), w.nameOf(k.Task, 0)); err == nil {
				t.Errorf("%s: the place has a file of %d bytes", text, n)
			}
			if list, _, err := w.place.List(t.Context(), "", 100); err != nil || len(list) != 0 {
				t.Errorf("%s: %v is left: %v", text, list, err)
			}
			if left := w.recordOf(k.Task, 0).Draft; left.Durable != 0 {
				t.Errorf("%s: %+v is left", text, left)
			}
		}
	})
}

func status(code int) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, _ *http.Request, _ int) bool { w.WriteHeader(code); return true }
}

// endless sends a film without an end and without a length.
func endless(w http.ResponseWriter, r *http.Request, _ int) bool {
	for p := film(64 << 10); r.Context().Err() == nil; {
		if _, err := w.Write(p); err != nil {
			break
		}
	}
	return true
}

// TestAResultThatIsTooLargeIsRequestedOnce checks that the result is requested
// again only after the operator has raised the limit.
func TestAResultThatIsTooLargeIsRequestedOnce(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		o := newOrigin(t, film(2<<20)).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			_ = http.NewResponseController(w).Flush() // without a length
			_, _ = w.Write(film(2 << 20))
			return true
		})
		w.allow(o).serve(func(c *Config) { c.MaxFile = 1 << 20 })
		for range 3 {
			w.mustFail(keeping("task_a", o.URL), "max_file")
		}
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
		w.serve(func(c *Config) { c.MaxFile = 2 << 20 })
		w.checkContent(w.keep(keeping("task_a", o.URL))[0], o.content)
	})
}

func TestASilentSourceIsAbandoned(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.silenceLimit = 100 * time.Millisecond
		silent := newOrigin(t, nil).answerWith(func(_ http.ResponseWriter, r *http.Request, _ int) bool { <-r.Context().Done(); return true })
		stuck := newOrigin(t, film(100_000))
		stuck.answerWith(func(w http.ResponseWriter, r *http.Request, n int) bool {
			if n > 1 {
				return false
			}
			w.Header().Set("Content-Length", "100000")
			_, _ = w.Write(stuck.content[:50_000])
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		})
		w.allow(silent, stuck)
		w.mustFail(keeping("task_a", silent.URL), "no data")
		w.checkContent(w.keep(keeping("task_b", stuck.URL))[0], stuck.content)

		k := keeping("task_c", "") // this copy ends only with its context
		k.Fetch = fetchOf(func(ctx context.Context) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() })
		w.mustFail(k, "no data")
	})
}

// TestASlowSourceIsNotSilent checks that a copy may take longer than
// silenceLimit.
func TestASlowSourceIsNotSilent(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.silenceLimit = 400 * time.Millisecond
		o := newOrigin(t, film(10_000))
		o.answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Content-Length", "10000")
			for part := range slices.Chunk(o.content, 1000) {
				_, _ = w.Write(part)
				_ = http.NewResponseController(w).Flush()
				<-time.After(100 * time.Millisecond) // the rate of the source
			}
			return true
		})
		w.allow(o)
		w.checkContent(w.keep(keeping("task_a", o.URL))[0], o.content)
		if n := len(o.requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestRedirectsAreChecked(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	o := newOrigin(t, film(1000))
	hops := newOrigin(t, nil)
	hops.answerWith(func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if r.URL.Path == "/0" {
			http.Redirect(w, r, o.URL+"/end#part", http.StatusSeeOther)
			return true
		}
		http.Redirect(w, r, fmt.Sprintf("/%c", r.URL.Path[1]-1), []int{301, 302, 303, 307, 308}[r.URL.Path[1]%5])
		return true
	})
	w.allow(o, hops)
	w.checkContent(w.keep(keeping("task_a", hops.URL+"/4"))[0], o.content)
	w.mustFail(keeping("task_b", hops.URL+"/5"), "more than 5")
	noLocation := newOrigin(t, nil).answerWith(status(http.StatusFound))
	w.allow(noLocation).mustFail(keeping("task_c", noLocation.URL), "without a valid Location")
	for _, r := range append(o.requests(), hops.requests()...) {
		if len(r.Header["Referer"])+len(r.Header["Cookie"])+len(r.Header["Authorization"]) != 0 {
			t.Errorf("the request has the headers %v", r.Header)
		}
	}
}

// TestSpecialAddressesAreNotContacted checks the URL itself and redirects of a
// permitted service.
func TestSpecialAddressesAreNotContacted(t *testing.T) {
	t.Parallel()
	w := newFixture(t, Dir(t.TempDir(), 1))
	target := forbiddenServer(t)
	_, port, _ := strings.Cut(strings.TrimPrefix(target, "http://"), ":")
	var to string
	hop := newOrigin(t, nil).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
		return true
	})
	w.allow(hop)
	for i, address := range []string{
		target, "http://localhost:" + port, "http://127.1:" + port, "http://2130706433:" + port, "http://0x7f.0.0.1:" + port, "http://[::1]:" + port,
		"http://[::ffff:127.0.0.1]:" + port, "http://0.0.0.0:" + port, "http://169.254.169.254/latest/meta-data/", "http://user:word@127.0.0.1:" + port,
		"//127.0.0.1:" + port + "/x", "file:///etc/passwd", "ftp://127.0.0.1:" + port, "gopher://127.0.0.1:" + port, "data:image/png;base64,AAAA", "http:///x", "http://127.0.0.1:" + port + "\\@a.example",
	} {
		w.mustFail(keeping(fmt.Sprintf("task_%d", i), address), "address of the result")
		to = address
		w.mustFail(keeping(fmt.Sprintf("task_hop_%d", i), hop.URL), "address of the result")
	}
}

// TestDNSRebinding checks that the address of the connection is checked, and not
// the result of an earlier lookup.
func TestDNSRebinding(t *testing.T) {
	t.Parallel()
	_, port, _ := strings.Cut(strings.TrimPrefix(forbiddenServer(t), "http://"), ":")
	w := newFixture(t, Dir(t.TempDir(), 1))
	w.Archive = Open(w.store, Options{Resolver: answering("127.0.0.1"), Logger: zaptest.NewLogger(t)})
	w.serve(func(*Config) {})
	err := w.mustFail(keeping("task_a", "http://cdn.example.com:"+port+"/x?secret"), "the address cannot be reached: ")
	if !errors.Is(err, ssrf.ErrProhibitedIP) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}

func TestARedirectFromHTTPSToHTTPIsNotFollowed(t *testing.T) {
	t.Parallel()
	request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/x", nil)
	for location, want := range map[string]string{"http://a.example/": "", "https://b.example/y#z": "https://b.example/y", "/z": "https://a.example/z", "": ""} {
		got, err := follow(&http.Response{Request: request, Header: http.Header{"Location": {location}}})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Location %q: got %q, %v, want %q", location, got, err, want)
		}
	}
}

func TestContentRanges(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int64{
		"bytes 5-9/10": {5, 10}, "bytes 0-0/1": {0, 1}, "Bytes 5-9/*": {5, -1}, " bytes 5-9/10 ": {5, 10},
		"": {}, "bytes": {}, "bytes 5-9": {}, "bytes */10": {}, "bytes 9-5/10": {}, "bytes 5-9/9": {}, "bytes -5-9/10": {}, "items 5-9/10": {}, "bytes 5-9/x": {}, "bytes 99999999999999999999-9/10": {},
	} {
		begin, total, err := contentRange(text)
		if [2]int64{begin, total} != want || (err != nil) != (want == [2]int64{}) {
			t.Errorf("%q: %d, %d, %v", text, begin, total, err)
		}
	}
}

// FuzzAnswers checks that inconsistent headers of a service are rejected.
func FuzzAnswers(f *testing.F) {
	f.Add(206, "bytes 5-9/10", `"one"`, "Mon, 02 Jan 2006 15:04:05 GMT", int64(5))
	f.Add(200, "", `W/"one"`, "", int64(-1))
	f.Add(200, "", "\"\r\"", "", int64(-1))
	f.Fuzz(func(t *testing.T, code int, span, tag, modified string, length int64) {
		header := http.Header{"Content-Range": {span}, "Etag": {tag}, "Last-Modified": {modified}, "Date": {"Mon, 02 Jan 2006 15:04:06 GMT"}}
		s, err := readResponse(&http.Response{StatusCode: code, Header: header, ContentLength: length, Body: http.NoBody}, 5, `"one"`)
		if err != nil {
			return
		}
		if code == http.StatusPartialContent && (s.from != 5 || s.validator != `"one"`) || code == http.StatusOK && s.from != 0 {
			t.Errorf("%+v", s)
		}
		if strings.HasPrefix(s.validator, "W/") || strings.ContainsAny(s.validator, "\r\n") {
			t.Errorf("%q is not a valid validator", s.validator)
		}
	})
}

// TestATooLargeContentLengthIsRefused checks that the result is refused before its
// body is read.
func TestATooLargeContentLengthIsRefused(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		w.silenceLimit = time.Hour
		o := newOrigin(t, nil).answerWith(func(w http.ResponseWriter, r *http.Request, _ int) bool {
			w.Header().Set("Content-Length", fmt.Sprint(DefaultMaxFile+1))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			return true
		})
		w.allow(o).mustFail(keeping("task_a", o.URL), "larger than 2147483648 bytes")
	})
}

// TestACopyIsRetriedAfterAFullDisk also checks that a failed copy leaves no draft.
func TestACopyIsRetriedAfterAFullDisk(t *testing.T) {
	t.Parallel()
	place := Dir(t.TempDir(), 1000).(*directory)
	w := newFixture(t, place)
	var free, taken uint64 // taken is the space that other programs use up between two queries
	place.space = func(string) (uint64, uint64, error) {
		free -= min(free, taken)
		return free, 1 << 40, nil
	}
	o := newOrigin(t, film(1<<20))
	slim := newOrigin(t, o.content).answerWith(func(w http.ResponseWriter, _ *http.Request, _ int) bool {
		_ = http.NewResponseController(w).Flush() // without a length
		_, _ = w.Write(film(1 << 20))
		return true
	})
	w.allow(o, slim)
	for _, row := range []struct {
		task        string
		from        *origin
		free, taken uint64
	}{
		{"task_a", o, 1000 + 1<<20 - 1, 0}, // one byte too little
		{"task_b", slim, 999, 0},
		{"task_c", slim, 1000 + 1<<19, 1 << 16}, // the disk fills during the copy
		{"task_d", o, 1000 + 1<<20 + 1<<16, 1 << 17},
	} {
		free, taken = row.free, row.taken
		w.mustFail(keeping(row.task, row.from.URL), "not enough free space")
		if list, _, err := place.List(t.Context(), "", 100); err != nil || len(list) != 0 {
			t.Errorf("%s: %v is left: %v", row.task, list, err)
		}
		free, taken = 1000+1<<20, 0
		link := w.keep(keeping(row.task, row.from.URL))[0]
		w.checkContent(link, o.content)
		name, _ := parts(t, link)
		if err := place.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// fetchOf returns a Fetch of these bytes.
func fetchOf(fn func(ctx context.Context) ([]byte, error)) func(context.Context, int) (io.ReadCloser, backends.Content, error) {
	return func(ctx context.Context, _ int) (io.ReadCloser, backends.Content, error) {
		content, err := fn(ctx)
		return http.NoBody, backends.Content{Size: int64(len(content))}, err
	}
}
