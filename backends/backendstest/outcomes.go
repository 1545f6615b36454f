package backendstest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Statuses that tests name often.
const (
	http401 = http.StatusUnauthorized
	http429 = http.StatusTooManyRequests
	http500 = http.StatusInternalServerError
	http503 = http.StatusServiceUnavailable
)

// answer is an act that reads the request and answers.
func answer(status int, header map[string]string, body string) act {
	return func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for name, value := range header {
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// cut is an act that breaks the connection off: before the service has read
// the request, or after it has done it.
func cut(done bool) act {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if done {
			pass.ServeHTTP(httptest.NewRecorder(), r)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.Close()
	}
}

func submissionOutcomes(t *testing.T, g *stage) {
	for status, want := range map[int]backends.Kind{
		http.StatusMovedPermanently:      backends.Refused,
		http.StatusFound:                 backends.Doubtful,
		http.StatusSeeOther:              backends.Doubtful,
		http.StatusTemporaryRedirect:     backends.Refused,
		http.StatusPermanentRedirect:     backends.Refused,
		http.StatusBadRequest:            backends.Refused,
		http401:                          backends.Refused,
		http.StatusPaymentRequired:       backends.Refused,
		http.StatusForbidden:             backends.Refused,
		http.StatusNotFound:              backends.Refused,
		http.StatusMethodNotAllowed:      backends.Refused,
		http.StatusRequestTimeout:        backends.Busy,
		http.StatusConflict:              backends.Doubtful,
		http.StatusGone:                  backends.Refused,
		http.StatusRequestEntityTooLarge: backends.Refused,
		http.StatusUnsupportedMediaType:  backends.Refused,
		http.StatusUnprocessableEntity:   backends.Refused,
		http429:                          backends.Busy,
		http500:                          backends.Doubtful,
		http.StatusBadGateway:            backends.Doubtful,
		http503:                          backends.Doubtful,
		http.StatusGatewayTimeout:        backends.Doubtful,
		599:                              backends.Doubtful,
	} {
		for _, body := range []string{"", "{}", "<html>no</html>", `{"error":{"message":"no","code":"no"},"message":"no"}`} {
			before := g.requests(Submit)
			g.on(Submit, answer(status, nil, body))
			_, err := g.backend.Submit(t.Context(), g.job())
			g.refusedAs(t, fmt.Sprintf("%d %s", status, body), err, want)
			if n := g.requests(Submit) - before; n != 1 {
				t.Errorf("%d: %d requests for one submission", status, n)
			}
		}
	}
	if n := g.double.Accepted(); n != 0 {
		t.Errorf("%d jobs were taken", n)
	}
}

func cutSubmission(t *testing.T, g *stage) {
	for _, done := range []bool{false, true} {
		before := g.requests(Submit)
		g.on(Submit, cut(done))
		_, err := g.backend.Submit(t.Context(), g.job())
		g.refusedAs(t, fmt.Sprintf("cut after it was done: %t", done), err, backends.Doubtful)
		if n := g.requests(Submit) - before; n != 1 {
			t.Errorf("%d requests for one submission", n)
		}
	}
	// A kept connection that breaks is where Go sends a request again by itself.
	g.on(Submit, nil)
	_ = g.submitted(t)
	g.on(Submit, cut(true))
	before := g.requests(Submit)
	_, err := g.backend.Submit(t.Context(), g.job())
	g.refusedAs(t, "cut on a kept connection", err, backends.Doubtful)
	if n := g.requests(Submit) - before; n != 1 {
		t.Errorf("%d requests for one submission", n)
	}
	// The head arrives and the body does not.
	g.on(Submit, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":"x"`)
	})
	_, err = g.backend.Submit(t.Context(), g.job())
	g.refusedAs(t, "half an answer", err, backends.Doubtful)
}

func nobodyThere(t *testing.T, g *stage) {
	g.server.Close()
	_, err := g.backend.Submit(t.Context(), g.job())
	g.refusedAs(t, "submit", err, backends.Busy)

	// Something answers there, and it is no TLS: the request has not left.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	_, err = g.Backend(t, "https://"+listener.Addr().String()).Submit(t.Context(), g.job())
	g.refusedAs(t, "submit without TLS", err, backends.Busy)
}

func pollOutcomes(t *testing.T, g *stage) {
	ref := g.submitted(t)
	for status, want := range map[int]backends.Kind{
		http.StatusFound:             backends.Busy,
		http.StatusPermanentRedirect: backends.Busy,
		http401:                      backends.Refused,
		http.StatusPaymentRequired:   backends.Refused,
		http.StatusForbidden:         backends.Refused,
		http.StatusNotFound:          backends.Gone,
		http.StatusGone:              backends.Gone,
		http.StatusRequestTimeout:    backends.Busy,
		http429:                      backends.Busy,
		http500:                      backends.Busy,
		http.StatusBadGateway:        backends.Busy,
		http503:                      backends.Busy,
		http.StatusGatewayTimeout:    backends.Busy,
	} {
		for _, body := range []string{"", "{}", `{"status":"failed","error":"no"}`} {
			g.on(Poll, answer(status, nil, body))
			got, err := g.backend.Poll(t.Context(), ref)
			g.refusedAs(t, fmt.Sprintf("%d %s: %+v", status, body, got), err, want)
		}
	}
	for _, done := range []bool{false, true} {
		g.on(Poll, cut(done))
		_, err := g.backend.Poll(t.Context(), ref)
		g.refusedAs(t, "cut", err, backends.Busy)
	}
	g.server.Close()
	_, err := g.backend.Poll(t.Context(), ref)
	g.refusedAs(t, "nobody there", err, backends.Busy)
}

func wrongCredential(t *testing.T, g *stage) {
	ref := g.submitted(t)
	for _, op := range []Op{Submit, Poll} {
		g.on(op, answer(http401, nil, `{"error":{"message":"You are not `+g.Secret+`"},"message":"You are not `+g.Secret+`"}`))
	}
	_, err := g.backend.Submit(t.Context(), g.job())
	e := g.refusedAs(t, "submit", err, backends.Refused)
	if e.Reason != backends.UpstreamError || strings.Contains(e.Message, "You are not") {
		t.Errorf("the caller is told %s %q", e.Reason, e.Message)
	}
	_, err = g.backend.Poll(t.Context(), ref)
	g.refusedAs(t, "poll", err, backends.Refused)
}

func redirects(t *testing.T, g *stage) {
	ref := g.submitted(t)
	var trapped bool
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped = true }))
	t.Cleanup(trap.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, op := range []Op{Submit, Poll, Cancel, Fetch} {
			g.on(op, answer(status, map[string]string{"Location": trap.URL}, ""))
		}
		if _, err := g.backend.Submit(t.Context(), g.job()); err == nil {
			t.Errorf("submit: %d is no error", status)
		}
		if _, err := g.backend.Poll(t.Context(), ref); err == nil {
			t.Errorf("poll: %d is no error", status)
		}
		if b, ok := g.backend.(backends.Canceler); ok && b.Cancel(t.Context(), ref) == nil {
			t.Errorf("cancel: %d is no error", status)
		}
		if b, ok := g.backend.(backends.Fetcher); ok {
			if file, _, err := b.Fetch(t.Context(), ref, 0); err == nil {
				_ = file.Close()
				t.Errorf("fetch: %d is no error", status)
			}
		}
	}
	trap.Close()
	if trapped {
		t.Error("a redirect was followed")
	}
}

func patience(t *testing.T, g *stage) {
	ref := g.submitted(t)
	day := time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"7":                                    7 * time.Second,
		"0":                                    0,
		"":                                     0,
		"-1":                                   0,
		"soon":                                 0,
		"1.5":                                  0,
		"3600":                                 time.Hour,
		"3601":                                 time.Hour,
		"9223372036854775807":                  time.Hour,
		day.Add(90e9).Format(http.TimeFormat):  90 * time.Second,
		day.Add(-90e9).Format(http.TimeFormat): 0,
		day.AddDate(1, 0, 0).Format(http.TimeFormat): time.Hour,
	} {
		header := map[string]string{"Retry-After": text, "Date": day.Format(http.TimeFormat)}
		g.on(Submit, answer(http429, header, "{}"))
		g.on(Poll, answer(http503, header, "{}"))
		_, err := g.backend.Submit(t.Context(), g.job())
		if e := g.refusedAs(t, "submit", err, backends.Busy); e.RetryAfter != want {
			t.Errorf("submit: %q is a wait of %s, want %s", text, e.RetryAfter, want)
		}
		_, err = g.backend.Poll(t.Context(), ref)
		if e := g.refusedAs(t, "poll", err, backends.Busy); e.RetryAfter != want {
			t.Errorf("poll: %q is a wait of %s, want %s", text, e.RetryAfter, want)
		}
	}
	g.on(Poll, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		w.Header().Set("Retry-After", "9")
		pass.ServeHTTP(w, r)
	})
	if status := g.polled(t, ref); status.RetryAfter != 9*time.Second {
		t.Errorf("a good poll asks for %s", status.RetryAfter)
	}
}

// grace is how long a call may take after its context has ended.
const grace = time.Second

func givenUp(t *testing.T, g *stage) {
	ref := g.submitted(t)
	g.double.Turn(backends.Succeeded)
	calls := map[Op]func(context.Context) error{
		Submit: func(ctx context.Context) error { _, err := g.backend.Submit(ctx, g.job()); return err },
		Poll:   func(ctx context.Context) error { _, err := g.backend.Poll(ctx, ref); return err },
	}
	if b, ok := g.backend.(backends.Canceler); ok {
		calls[Cancel] = func(ctx context.Context) error { return b.Cancel(ctx, ref) }
	}
	if b, ok := g.backend.(backends.Fetcher); ok {
		calls[Fetch] = func(ctx context.Context) error {
			file, _, err := b.Fetch(ctx, ref, 0)
			if err == nil {
				defer file.Close()
				_, err = io.Copy(io.Discard, file)
			}
			return err
		}
	}
	for op, call := range calls {
		for _, begun := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			g.on(op, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				_, _ = io.Copy(io.Discard, r.Body)
				if begun {
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush()
				}
				cancel()
				<-r.Context().Done()
			})
			ended := make(chan error, 1)
			go func() { ended <- call(ctx) }()
			<-ctx.Done()
			select {
			case err := <-ended:
				if err == nil {
					t.Errorf("%s: no error", op)
				}
				if op == Submit {
					g.refusedAs(t, "submit", err, backends.Doubtful)
				}
			case <-time.After(grace):
				t.Fatalf("%s goes on after its context", op)
			}
			g.on(op, nil)
		}
	}
}
