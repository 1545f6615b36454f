package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"text/template"
	"time"
)

// inOrder is the configuration in docs/guide/production.md for a fallback: the second
// upstream is used if the first fails. With lb_policy first, a retry goes to
// another upstream only if the previous one is marked as failed. Therefore
// every status that is retried (lb_retry_match) must also mark
// (unhealthy_status, fail_duration).
//
// A 500 is in neither list. It may concern this one call, and the calls of one
// caller must not disable upstreams for all others.
var inOrder = template.Must(template.New("").Parse(`
	reverse_proxy {{.First}} {{.Second}} {
		transport modelgate
		lb_policy first
		lb_retries 2
		lb_retry_match {
			expression ` + "`{rp.status_code} in [429, 502, 503, 529]`" + `
		}
		fail_duration 5s
		unhealthy_status 429 502 503 529
	}
`))

// inTurns is the configuration in docs/guide/production.md for equal upstreams: they share
// the calls, and a call that fails at one is retried at the next. Only an
// unreachable upstream is marked.
var inTurns = template.Must(template.New("").Parse(`
	reverse_proxy {{.First}} {{.Second}} {
		transport modelgate
		lb_policy round_robin
		lb_retries 2
		lb_retry_match {
			expression ` + "`{rp.status_code} in [429, 500, 502, 503, 529]`" + `
		}
		fail_duration 5s
	}
`))

// upstreams returns a site with two upstreams and one of the configurations
// above.
func upstreams(t *testing.T, way *template.Template, first, second string) site {
	t.Helper()
	var lines bytes.Buffer
	if err := way.Execute(&lines, struct{ First, Second string }{first, second}); err != nil {
		t.Fatal(err)
	}
	return site{Messages: lines.String(), Completions: lines.String()}
}

// unreachable returns an address without a listener.
func unreachable(t *testing.T) string {
	t.Helper()
	return freeAddress(t)
}

// largeBodies are calls that exceed the buffers of a connection.
var largeBodies = map[string]string{
	"/v1/messages":         strings.Replace(callBodies["/v1/messages"], "Hi", strings.Repeat("é", 15<<20), 1),
	"/v1/chat/completions": strings.Replace(callBodies["/v1/chat/completions"], "Hi", strings.Repeat("x", 7<<20), 1),
}

func TestTheFailoverConfigurationIsThatOfTheGuide(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/guide/production.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, way := range map[string]*template.Template{"in order": inOrder, "in turns": inTurns} {
		var lines bytes.Buffer
		if err := way.Execute(&lines, struct{ First, Second string }{"", ""}); err != nil {
			t.Fatal(err)
		}
		// The guide has other upstreams and more indentation.
		_, within, _ := strings.Cut(lines.String(), "{\n")
		if !strings.Contains(strings.ReplaceAll(string(guide), "\t", ""), strings.ReplaceAll(within, "\t", "")) {
			t.Errorf("%s: the guide does not have these lines:\n%s", name, within)
		}
	}
}

func TestACallGoesToTheSecondUpstreamWhenTheFirstCannotBeReached(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]*template.Template{"in order": inOrder, "in turns": inTurns} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, bodies := range []map[string]string{callBodies, streamBodies, largeBodies} {
				second := newBackend(t, answerCalls)
				g := running(t, upstreams(t, way, unreachable(t), second.address()), second)
				for path, body := range bodies {
					if a := g.call(path, body, g.bearer()...); a.Status != http.StatusOK || a.Err != nil {
						t.Errorf("%s of %d bytes: %d %.200s %v", path, len(body), a.Status, a.Body, a.Err)
						continue
					}
					if got := second.next(); string(got.Body) != body {
						t.Errorf("%s: the second upstream got %d of %d bytes", path, len(got.Body), len(body))
					}
				}
			}
		})
	}
}

func TestACallGoesToTheSecondUpstreamWhenTheFirstIsBusy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		way      *template.Template
		statuses []int
	}{{"in order", inOrder, []int{429, 502, 503, 529}}, {"in turns", inTurns, []int{429, 500, 502, 503, 529}}} {
		for _, status := range c.statuses {
			t.Run(fmt.Sprint(c.name, status), func(t *testing.T) {
				t.Parallel()
				kinds := []map[string]string{streamBodies}
				if status == 429 {
					kinds = append(kinds, callBodies, largeBodies)
				}
				for _, bodies := range kinds {
					for path, body := range bodies {
						first, second := newBackend(t, respond(status, `{"error":{}}`)), newBackend(t, answerCalls)
						g := running(t, upstreams(t, c.way, first.address(), second.address()), first, second)
						// With inTurns, one of two calls begins at the first
						// upstream.
						began := time.Now()
						for range 2 {
							if a := g.call(path, body, g.bearer()...); a.Status != http.StatusOK || a.Err != nil {
								t.Errorf("%s of %d bytes: %d %.200s %v", path, len(body), a.Status, a.Body, a.Err)
							}
						}
						maxCalls := 1
						if time.Since(began) > 5*time.Second { // the mark of the first has expired during large bodies
							maxCalls = 2
						}
						if n := len(first.requests()); n < 1 || n > maxCalls || len(second.requests()) != 2 {
							t.Errorf("%s: the upstreams got %d and %d calls, want %d and 2", path, n, len(second.requests()), maxCalls)
						}
						for _, got := range append(first.requests(), second.requests()...) {
							if string(got.Body) != body {
								t.Errorf("%s: an upstream got %d of %d bytes", path, len(got.Body), len(body))
							}
						}
					}
				}
			})
		}
	}
}

func TestAnErrorOfTheCallIsNotRetried(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 404, 413, 500} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			first, second := newBackend(t, respond(status, `{"error":{}}`)), newBackend(t, answerCalls)
			g := running(t, upstreams(t, inOrder, first.address(), second.address()), first, second)
			for range 3 {
				if a := g.call("/v1/messages", callBodies["/v1/messages"], g.bearer()...); a.Status < 400 {
					t.Errorf("got %d %s", a.Status, a.Body)
				}
			}
			if len(first.requests()) != 3 || len(second.requests()) != 0 {
				t.Errorf("the upstreams got %d and %d calls, want 3 and 0", len(first.requests()), len(second.requests()))
			}
		})
	}
}

func TestWithoutAnUpstreamTheErrorHasTheCallersDialect(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]*template.Template{"in order": inOrder, "in turns": inTurns} {
		for _, c := range []struct {
			status      int // of both upstreams; zero: unreachable
			want        int
			kind, other string // the error's type in the two dialects
		}{
			{0, 503, "overloaded_error", "server_error"},
			{429, 429, "rate_limit_error", "rate_limit_error"},
			{502, 503, "overloaded_error", "server_error"},
			{503, 503, "overloaded_error", "server_error"},
			{529, 503, "overloaded_error", "server_error"},
		} {
			t.Run(fmt.Sprint(name, c.status), func(t *testing.T) {
				t.Parallel()
				for path, kind := range map[string]string{"/v1/messages": c.kind, "/v1/chat/completions": c.other} {
					first, second := newBackend(t, respond(c.status, `{}`)), newBackend(t, respond(c.status, `{}`))
					s := upstreams(t, way, first.address(), second.address())
					if c.status == 0 {
						s = upstreams(t, way, unreachable(t), unreachable(t))
					}
					g := running(t, s, first, second)
					a := g.call(path, streamBodies[path], g.bearer()...)
					if a.Status != c.want || !strings.Contains(a.Body, `"type":"`+kind+`"`) || a.Header.Get("Retry-After") == "" {
						t.Errorf("%s: got %d %s, Retry-After %q", path, a.Status, a.Body, a.Header.Get("Retry-After"))
					}
					if tries := len(first.requests()) + len(second.requests()); c.status != 0 && (tries < 2 || tries > 3) {
						t.Errorf("%s: %d tries", path, tries)
					}
				}
			})
		}
	}
}

func TestTheFirstUpstreamIsUsedAgainAfterItsPause(t *testing.T) {
	t.Parallel()
	first := newBackend(t, inSequence(respond(503, `{}`), answerCalls))
	second := newBackend(t, answerCalls)
	g := running(t, upstreams(t, inOrder, first.address(), second.address()), first, second)
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	began := time.Now()
	for len(first.requests()) < 2 {
		if a := g.call("/v1/messages", callBodies["/v1/messages"], g.bearer()...); a.Status != http.StatusOK {
			t.Fatalf("got %d %s", a.Status, a.Body)
		}
		if time.Since(began) > waitLimit {
			t.Fatal("the first upstream got no other call")
		}
		<-beat.C
	}
	if paused := time.Since(began); paused < 4*time.Second {
		t.Errorf("the first upstream got another call after %s", paused)
	}
}
