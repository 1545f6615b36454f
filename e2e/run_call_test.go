package e2e

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// scriptHeader names the script of a call to the backend.
const scriptHeader = "X-Script"

// scriptSet contains the scripts that a backend knows, by number.
type scriptSet struct {
	calls sync.Map
	last  atomic.Int64 // the last number of a call
}

func (r *scriptSet) add(k *scriptedCall) { r.calls.Store(strconv.Itoa(k.number), k) }

// callTimeout is the longest duration of a call. Some calls are held while much
// else happens.
const callTimeout = 2 * time.Minute

// serve is the backend's part of a call.
func (r *scriptSet) serve(s *scriptWriter, a *recordedRequest) {
	known, ok := r.calls.Load(a.Header.Get(scriptHeader))
	if !ok {
		respond(http.StatusTeapot, `{"error":{"message":"no such script"}}`)(s, a)
		return
	}
	k := known.(*scriptedCall)
	if k.asked != "" {
		switch body := string(a.Body); {
		case strings.Contains(body, fmt.Sprintf(`"model":%q`, k.asked)) && k.fails == 0:
			panic(http.ErrAbortHandler)
		case strings.Contains(body, fmt.Sprintf(`"model":%q`, k.asked)):
			respond(k.fails, `{"error":{"message":"busy"}}`)(s, a)
			return
		case !strings.Contains(body, strings.TrimSuffix(k.requestOf(k.model), "}")[1:]):
			respond(http.StatusTeapot, `{"error":{"message":"not the request of the script"}}`)(s, a)
			return
		}
	}
	if k.surface != nil && k.asked == "" && string(a.Body) != k.request() {
		respond(http.StatusTeapot, `{"error":{"message":"not the request of the script"}}`)(s, a)
		return
	}
	switch {
	case k.end == rejected:
		respond(k.status, `{"type":"error","error":{"type":"api_error","message":"no"}}`)(s, a)
		return
	case k.stop < 0:
		panic(http.ErrAbortHandler)
	}
	mediaType := "text/event-stream"
	if k.surface != nil {
		mediaType = cmp.Or(k.mediaType, mediaType)
	}
	s.writeHeader(http.StatusOK, "Content-Type", mediaType)
	for n, u := range k.events[:k.stop] {
		if k.release != nil && n == k.stop/2 {
			close(k.waiting)
			select {
			case <-k.release:
			case <-a.Gone:
			}
		}
		s.write(u.wire)
	}
	if k.end == whole {
		return
	}
	select { // the connection does not break before the client has read what was sent
	case <-k.received:
	case <-a.Gone:
		select {
		case <-k.received: // and has disconnected at once
		default:
			return
		}
	case <-time.After(callTimeout):
		panic(http.ErrAbortHandler)
	}
	switch k.end {
	case clientGone:
		if k.endsWithoutClient() {
			if k.continues() {
				s.write(wireOf(k.events[k.stop:]))
			} else {
				<-a.Gone
			}
			k.ended = time.Now()
			close(k.gone)
		}
	case clientGoneUnnoticed:
		s.write(wireOf(k.events[k.stop:]))
	case failed:
		s.write(k.failure())
	case split:
		next := k.events[k.stop].wire
		s.write(next[:strings.Index(next, "{")+1])
		panic(http.ErrAbortHandler)
	case dropped:
		panic(http.ErrAbortHandler)
	}
}

// runCall is the client's part of a call. It returns an error if the answer
// differs from what the backend has sent.
func (g *gateway) runCall(ctx context.Context, transport http.RoundTripper, key string, k *scriptedCall) error {
	ctx, leave := context.WithTimeout(ctx, callTimeout)
	defer leave()
	req := g.request(ctx, k.path, k.request(), "Authorization", "Bearer "+key, scriptHeader, strconv.Itoa(k.number))
	if k.surface != nil && k.contentType != "" {
		req.Header.Set("Content-Type", k.contentType)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	k.id = resp.Header.Get("X-Request-Id")
	if k.stop < 0 {
		want := k.status
		if k.end != rejected {
			want = http.StatusServiceUnavailable
		}
		if resp.StatusCode != want {
			return fmt.Errorf("%s: got %s", k.end, resp.Status)
		}
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("got %s: %s", resp.Status, text)
	}

	passes := k.passes()
	got := make([]byte, len(passes))
	if n, err := io.ReadFull(resp.Body, got); err != nil || string(got) != passes {
		return fmt.Errorf("read %q, want %q: %w", got[:n], passes, err)
	}
	close(k.received)
	if k.end == clientGone || k.end == clientGoneUnnoticed {
		leave()
		return nil
	}
	rest, err := io.ReadAll(resp.Body)
	switch {
	case (k.end == whole || k.endsWhole()) && err == nil && len(rest) == 0:
	case k.end == failed && err == nil && string(rest) == k.failure():
	case k.end != whole && k.end != failed && (err != nil || strings.Contains(string(rest), `"error"`)):
	default:
		return fmt.Errorf("%s: the rest of the answer is %q (%w)", k.end, rest, err)
	}
	return nil
}

func TestTheBillingRuleOfTheTests(t *testing.T) {
	t.Parallel()
	text := func(words string) scriptEvent { return scriptEvent{content: true, text: words} }
	in, out := &tokens{Input: 100}, &tokens{Output: 50, Reasoning: 10}
	for _, c := range []struct {
		name         string
		scriptedCall *scriptedCall
		want         tokens
		ended        string
		usage        string
	}{
		{"reported", &scriptedCall{end: whole, events: []scriptEvent{{input: in, opening: 1}, text("abc"), {output: out}, {last: true}}}, tokens{Input: 100, Output: 50, Reasoning: 10}, "complete", "reported"},
		{"not reported", &scriptedCall{end: whole, prompt: "four", events: []scriptEvent{text("abcd"), {last: true}}}, tokens{Input: 2, Output: 2}, "complete", "estimated"},
		{"disconnected early", &scriptedCall{end: clientGone, events: []scriptEvent{{input: in, opening: 1}, text("abcdefg")}}, tokens{Input: 100, Output: 3}, "client_gone", "estimated"},
		{"disconnected before it began", &scriptedCall{end: clientGone, prompt: "seven b", events: []scriptEvent{{}}}, tokens{Input: 3}, "client_gone", "estimated"},
		{"disconnected with more input than reported", &scriptedCall{end: clientGone, prompt: strings.Repeat("x", 600), events: []scriptEvent{{input: in}, text("abc"), {output: out}}}, tokens{Input: 200, Output: 50, Reasoning: 10}, "client_gone", "estimated"},
		{"broken after an empty block", &scriptedCall{end: dropped, events: []scriptEvent{{input: in, opening: 1}, {}}}, tokens{}, "upstream_error", "none"},
		{"more reported than max_tokens", &scriptedCall{end: whole, events: []scriptEvent{{input: in}, text("abc"), {output: &tokens{Output: 5000}}, {last: true}}}, tokens{Input: 100, Output: 2048}, "complete", "reported"},
		{"broken before it began", &scriptedCall{end: dropped, events: []scriptEvent{{input: in, opening: 1}}}, tokens{}, "upstream_error", "none"},
		{"broken after its report", &scriptedCall{end: dropped, events: []scriptEvent{{input: in, opening: 1}, text("abc"), {output: out}}}, tokens{Input: 100, Output: 50, Reasoning: 10}, "upstream_error", "reported"},
	} {
		c.scriptedCall.stop, c.scriptedCall.maxTokens = len(c.scriptedCall.events), 2048
		if got, ended, usage := c.scriptedCall.charge(); got != c.want || ended != c.ended || usage != c.usage {
			t.Errorf("%s: %+v %s %s, want %+v %s %s", c.name, got, ended, usage, c.want, c.ended, c.usage)
		}
	}
}
