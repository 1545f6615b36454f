package e2e

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	openaioption "github.com/openai/openai-go/v3/option"
)

// reloads is the number of reloads during a stream.
const reloads = 10

func TestAStreamAndOtherCallsSurviveReloads(t *testing.T) {
	t.Parallel()
	for path, numbered := range map[string]func(n int) string{
		"/v1/messages": func(n int) string {
			return event("content_block_delta", fmt.Sprintf(`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%d"}}`, n))
		},
		"/v1/chat/completions": func(n int) string {
			return event("", fmt.Sprintf(`{"id":"1","choices":[{"index":0,"delta":{"content":"%d"},"finish_reason":null}]}`, n))
		},
	} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			streamThroughReloads(t, path, numbered)
		})
	}
}

func streamThroughReloads(t *testing.T, path string, numbered func(n int) string) {
	const interval = 20 * time.Millisecond
	count := int(*streamLength / interval)
	opening, ending := messageEvents[0], messageEvents[len(messageEvents)-1]
	if path != "/v1/messages" {
		opening, ending = chatEvents[0], chatEvents[len(chatEvents)-1]
	}
	underWay, release := make(chan struct{}, 100), make(chan struct{})
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		if !strings.Contains(string(a.Body), `"stream":true`) {
			if a.Header.Get("X-Held") != "" {
				underWay <- struct{}{}
				<-release
			}
			answerCalls(s, a)
			return
		}
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
		s.write(opening)
		beat := time.NewTicker(interval)
		defer beat.Stop()
		for n := range count {
			select {
			case <-beat.C:
				s.write(numbered(n))
			case <-a.Gone:
				return
			}
		}
		s.write(ending)
	})
	s := forwarding(b)
	// The grace period is shorter than the stream. A reload must not end it.
	s.Global = "grace_period 1s"
	g := running(t, s, b)

	var all sync.WaitGroup
	due := make(chan int, reloads)
	for _, p := range []protocol{http1, http2} {
		resp := g.open(t.Context(), p, path, streamBodies[path])
		all.Go(func() {
			left, err := follow(resp.Body, opening, ending, count, numbered, func(n int) {
				if p == http1 && n%(count/(reloads+1)) == 0 && n > 0 && n/(count/(reloads+1)) <= reloads {
					due <- n
				}
			})
			if left > 0 || err != nil {
				t.Errorf("%s: the stream failed %d events before its end: %v", p, left, err)
			}
		})
	}

	for n := range reloads {
		receive(t, due, "the next part of the stream")
		check := func(i int, err error) {
			if err != nil {
				t.Errorf("reload %d, call %d: %v", n, i, err)
			}
		}
		// Half of the calls are running when the configuration changes; the
		// other half begin at that time.
		for i := range 5 {
			all.Go(func() { check(i, g.callHeld()) })
			receive(t, underWay, "a call at the backend")
		}
		for i := range 5 {
			all.Go(func() { check(5+i, g.callBySDK(i)) })
		}
		g.Site.Global = fmt.Sprintf("grace_period %dms", 1001+n)
		if err := g.reload(); err != nil {
			t.Errorf("reload %d: %v", n, err)
		}
		for range 5 {
			release <- struct{}{}
		}
	}
	all.Wait()
	if n := strings.Count(g.process.log.String(), "servers shutting down"); n != reloads {
		t.Errorf("the servers were replaced %d times, want %d", n, reloads)
	}
}

// callHeld makes a call that the backend holds until the test releases it.
func (g *gateway) callHeld() error {
	const path = "/v1/messages"
	a := g.send(g.request(g.t.Context(), path, callBodies[path], append(g.bearer(), "X-Held", "yes")...))
	if a.Status != http.StatusOK || a.Err != nil || a.Body != messageJSON {
		return fmt.Errorf("got %d %q: %w", a.Status, a.Body, a.Err)
	}
	return nil
}

// callBySDK makes a call with an SDK, which retries if a connection breaks. At
// each reload Caddy opens a new listener, and the system resets connections
// that the old one has not accepted yet.
func (g *gateway) callBySDK(i int) (err error) {
	if i%2 == 0 {
		client := g.anthropicClient(anthropicoption.WithMaxRetries(2))
		_, err = client.Messages.New(g.t.Context(), message("Hi"))
		return err
	}
	client := g.openaiClient(openaioption.WithMaxRetries(2))
	_, err = client.Chat.Completions.New(g.t.Context(), chat("Hi"))
	return err
}

// follow reads a stream that must consist of numbered events. It returns how
// many were missing if it failed.
func follow(r io.Reader, opening, ending string, count int, numbered func(int) string, passed func(int)) (left int, err error) {
	for n := -1; n <= count; n++ {
		want := opening
		switch {
		case n == count:
			want = ending
		case n >= 0:
			want = numbered(n)
		}
		got := make([]byte, len(want))
		if read, err := io.ReadFull(r, got); err != nil || string(got) != want {
			return count - n + 1, fmt.Errorf("read %q, want %q: %w", got[:read], want, err)
		}
		passed(n)
	}
	rest, err := io.ReadAll(r)
	if len(rest) > 0 {
		err = fmt.Errorf("%q after the end: %w", rest, err)
	}
	return 0, err
}
