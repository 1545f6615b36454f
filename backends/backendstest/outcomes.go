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

// Short names of status codes.
const (
	http401 = http.StatusUnauthorized
	http429 = http.StatusTooManyRequests
	http500 = http.StatusInternalServerError
	http503 = http.StatusServiceUnavailable
)

// answer returns an override with a fixed answer.
func answer(status int, header map[string]string, body string) overrideFunc {
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

// dropConnection returns an override that closes the connection. If perform is
// set, the service performs the request before.
func dropConnection(perform bool) overrideFunc {
	return func(w http.ResponseWriter, r *http.Request, mock http.Handler) {
		if perform {
			mock.ServeHTTP(httptest.NewRecorder(), r)
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_ = conn.Close()
	}
}

func testSubmissionOutcomes(t *testing.T, f *fixture) {
	for status, want := range map[int]backends.Kind{
		http.StatusMovedPermanently:      backends.Refused,
		http.StatusFound:                 backends.Unconfirmed,
		http.StatusSeeOther:              backends.Unconfirmed,
		http.StatusTemporaryRedirect:     backends.Refused,
		http.StatusPermanentRedirect:     backends.Refused,
		http.StatusBadRequest:            backends.Refused,
		http401:                          backends.Refused,
		http.StatusPaymentRequired:       backends.Refused,
		http.StatusForbidden:             backends.Refused,
		http.StatusNotFound:              backends.Refused,
		http.StatusMethodNotAllowed:      backends.Refused,
		http.StatusRequestTimeout:        backends.Busy,
		http.StatusConflict:              backends.Unconfirmed,
		http.StatusGone:                  backends.Refused,
		http.StatusRequestEntityTooLarge: backends.Refused,
		http.StatusUnsupportedMediaType:  backends.Refused,
		http.StatusUnprocessableEntity:   backends.Refused,
		http429:                          backends.Busy,
		http500:                          backends.Unconfirmed,
		http.StatusBadGateway:            backends.Unconfirmed,
		http503:                          backends.Unconfirmed,
		http.StatusGatewayTimeout:        backends.Unconfirmed,
		599:                              backends.Unconfirmed,
	} {
		for _, body := range []string{"", "{}", "<html>no</html>", `{"error":{"message":"no","code":"no"},"message":"no"}`} {
			before := f.requests(Submit)
			f.override(Submit, answer(status, nil, body))
			_, err := f.backend.Submit(t.Context(), f.job())
			f.wantError(t, fmt.Sprintf("%d %s", status, body), err, want)
			if n := f.requests(Submit) - before; n != 1 {
				t.Errorf("%d: one submission sent %d requests", status, n)
			}
		}
	}
	if n := f.mock.Accepted(); n != 0 {
		t.Errorf("%d jobs were accepted", n)
	}
}

func testDroppedSubmission(t *testing.T, f *fixture) {
	for _, perform := range []bool{false, true} {
		before := f.requests(Submit)
		f.override(Submit, dropConnection(perform))
		_, err := f.backend.Submit(t.Context(), f.job())
		f.wantError(t, fmt.Sprintf("connection dropped, request performed: %t", perform), err, backends.Unconfirmed)
		if n := f.requests(Submit) - before; n != 1 {
			t.Errorf("one submission sent %d requests", n)
		}
	}
	// Go repeats a request if a reused connection breaks.
	f.override(Submit, nil)
	_ = f.submit(t)
	f.override(Submit, dropConnection(true))
	before := f.requests(Submit)
	_, err := f.backend.Submit(t.Context(), f.job())
	f.wantError(t, "reused connection dropped", err, backends.Unconfirmed)
	if n := f.requests(Submit) - before; n != 1 {
		t.Errorf("one submission sent %d requests", n)
	}
	// The service sends only a part of the body.
	f.override(Submit, func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Length", "100")
		_, _ = io.WriteString(w, `{"id":"x"`)
	})
	_, err = f.backend.Submit(t.Context(), f.job())
	f.wantError(t, "truncated answer", err, backends.Unconfirmed)
}

func testUnreachable(t *testing.T, f *fixture) {
	f.server.Close()
	_, err := f.backend.Submit(t.Context(), f.job())
	f.wantError(t, "submit", err, backends.Busy)

	// The address accepts connections but does not speak TLS, so the request
	// was not sent.
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
	_, err = f.Backend(t, "https://"+listener.Addr().String()).Submit(t.Context(), f.job())
	f.wantError(t, "submit without TLS", err, backends.Busy)
}

func testPollOutcomes(t *testing.T, f *fixture) {
	ref := f.submit(t)
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
			f.override(Poll, answer(status, nil, body))
			got, err := f.backend.Poll(t.Context(), ref)
			f.wantError(t, fmt.Sprintf("%d %s: %+v", status, body, got), err, want)
		}
	}
	for _, perform := range []bool{false, true} {
		f.override(Poll, dropConnection(perform))
		_, err := f.backend.Poll(t.Context(), ref)
		f.wantError(t, "dropped connection", err, backends.Busy)
	}
	f.server.Close()
	_, err := f.backend.Poll(t.Context(), ref)
	f.wantError(t, "poll of an unreachable service", err, backends.Busy)
}

func testWrongCredential(t *testing.T, f *fixture) {
	ref := f.submit(t)
	for _, op := range []Op{Submit, Poll} {
		f.override(op, answer(http401, nil, `{"error":{"message":"You are not `+f.Secret+`"},"message":"You are not `+f.Secret+`"}`))
	}
	_, err := f.backend.Submit(t.Context(), f.job())
	e := f.wantError(t, "submit", err, backends.Refused)
	if e.Reason != backends.UpstreamError || strings.Contains(e.Message, "You are not") {
		t.Errorf("the error for the caller is %s %q", e.Reason, e.Message)
	}
	_, err = f.backend.Poll(t.Context(), ref)
	f.wantError(t, "poll", err, backends.Refused)
}

func testRedirects(t *testing.T, f *fixture) {
	ref := f.submit(t)
	var followed bool
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	t.Cleanup(target.Close)
	for _, status := range []int{301, 302, 303, 307, 308} {
		for _, op := range []Op{Submit, Poll, Cancel, Fetch} {
			f.override(op, answer(status, map[string]string{"Location": target.URL}, ""))
		}
		if _, err := f.backend.Submit(t.Context(), f.job()); err == nil {
			t.Errorf("submit: no error after status %d", status)
		}
		if _, err := f.backend.Poll(t.Context(), ref); err == nil {
			t.Errorf("poll: no error after status %d", status)
		}
		if b, ok := f.backend.(backends.Canceler); ok && b.Cancel(t.Context(), ref) == nil {
			t.Errorf("cancel: no error after status %d", status)
		}
		if b, ok := f.backend.(backends.Fetcher); ok {
			if file, _, err := b.Fetch(t.Context(), ref, 0); err == nil {
				_ = file.Close()
				t.Errorf("fetch: no error after status %d", status)
			}
		}
	}
	target.Close()
	if followed {
		t.Error("a redirect was followed")
	}
}

func testRetryAfter(t *testing.T, f *fixture) {
	ref := f.submit(t)
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
		f.override(Submit, answer(http429, header, "{}"))
		f.override(Poll, answer(http503, header, "{}"))
		_, err := f.backend.Submit(t.Context(), f.job())
		if e := f.wantError(t, "submit", err, backends.Busy); e.RetryAfter != want {
			t.Errorf("submit: RetryAfter for %q is %s, want %s", text, e.RetryAfter, want)
		}
		_, err = f.backend.Poll(t.Context(), ref)
		if e := f.wantError(t, "poll", err, backends.Busy); e.RetryAfter != want {
			t.Errorf("poll: RetryAfter for %q is %s, want %s", text, e.RetryAfter, want)
		}
	}
	f.override(Poll, func(w http.ResponseWriter, r *http.Request, mock http.Handler) {
		w.Header().Set("Retry-After", "9")
		mock.ServeHTTP(w, r)
	})
	if status := f.poll(t, ref); status.RetryAfter != 9*time.Second {
		t.Errorf("RetryAfter of a successful poll is %s, want 9s", status.RetryAfter)
	}
}

// grace is the longest time that a call may take after its context ends.
const grace = time.Second

func testContextCancelled(t *testing.T, f *fixture) {
	ref := f.submit(t)
	f.mock.SetState(backends.Succeeded)
	calls := map[Op]func(context.Context) error{
		Submit: func(ctx context.Context) error { _, err := f.backend.Submit(ctx, f.job()); return err },
		Poll:   func(ctx context.Context) error { _, err := f.backend.Poll(ctx, ref); return err },
	}
	if b, ok := f.backend.(backends.Canceler); ok {
		calls[Cancel] = func(ctx context.Context) error { return b.Cancel(ctx, ref) }
	}
	if b, ok := f.backend.(backends.Fetcher); ok {
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
		for _, partial := range []bool{false, true} {
			ctx, cancel := context.WithCancel(t.Context())
			f.override(op, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
				_, _ = io.Copy(io.Discard, r.Body)
				if partial {
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
					t.Errorf("%s: no error after the context ended", op)
				}
				if op == Submit {
					f.wantError(t, "submit", err, backends.Unconfirmed)
				}
			case <-time.After(grace):
				t.Fatalf("%s continues after its context ended", op)
			}
			f.override(op, nil)
		}
	}
}
