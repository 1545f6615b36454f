package e2e

import (
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

// talkHeader tells the backend which talk a call is.
const talkHeader = "X-Talk"

// repertoire has the talks that a backend knows, by their numbers.
type repertoire struct {
	talks sync.Map
	last  atomic.Int64 // number, of those that markets make up
}

func (r *repertoire) add(k *talk) { r.talks.Store(strconv.Itoa(k.number), k) }

// endurance is how long a talk may take: some are held while much else happens.
const endurance = 2 * time.Minute

// play is the backend's side of a talk.
func (r *repertoire) play(s *stage, a *ask) {
	known, ok := r.talks.Load(a.Header.Get(talkHeader))
	if !ok {
		answers(http.StatusTeapot, `{"error":{"message":"no such talk"}}`)(s, a)
		return
	}
	k := known.(*talk)
	switch {
	case k.end == denied:
		answers(k.status, `{"type":"error","error":{"type":"api_error","message":"no"}}`)(s, a)
		return
	case k.stop < 0:
		panic(http.ErrAbortHandler)
	}
	s.head(http.StatusOK, "Content-Type", "text/event-stream")
	for n, u := range k.said[:k.stop] {
		if k.release != nil && n == k.stop/2 {
			close(k.waits)
			select {
			case <-k.release:
			case <-a.Gone:
			}
		}
		s.say(u.wire)
	}
	if k.end == whole {
		return
	}
	select { // nothing breaks before the client has read what was said
	case <-k.heard:
	case <-a.Gone:
		select {
		case <-k.heard: // and has left at once
		default:
			return
		}
	case <-time.After(endurance):
		panic(http.ErrAbortHandler)
	}
	switch k.end {
	case left:
		if k.outlived() {
			if k.runsOn() {
				s.say(wireOf(k.said[k.stop:]))
			} else {
				<-a.Gone
			}
			k.ended = time.Now()
			close(k.gone)
		}
	case deaf:
		s.say(wireOf(k.said[k.stop:]))
	case failed:
		s.say(k.failure())
	case split:
		next := k.said[k.stop].wire
		s.say(next[:strings.Index(next, "{")+1])
		panic(http.ErrAbortHandler)
	case torn:
		panic(http.ErrAbortHandler)
	}
}

// conduct is the client's side of a talk. An error is of an answer that is not
// what the backend has sent.
func (g *gateway) conduct(ctx context.Context, transport http.RoundTripper, key string, k *talk) error {
	ctx, leave := context.WithTimeout(ctx, endurance)
	defer leave()
	req := g.request(ctx, k.path, k.request(), "Authorization", "Bearer "+key, talkHeader, strconv.Itoa(k.number))
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	k.id = resp.Header.Get("X-Request-Id")
	if k.stop < 0 {
		want := k.status
		if k.end != denied {
			want = http.StatusServiceUnavailable
		}
		if resp.StatusCode != want {
			return fmt.Errorf("%s: answered %s", k.end, resp.Status)
		}
		_, err := io.Copy(io.Discard, resp.Body)
		return err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("answered %s: %s", resp.Status, text)
	}

	passes := k.passes()
	got := make([]byte, len(passes))
	if n, err := io.ReadFull(resp.Body, got); err != nil || string(got) != passes {
		return fmt.Errorf("read %q, want %q: %w", got[:n], passes, err)
	}
	close(k.heard)
	if k.end == left || k.end == deaf {
		leave()
		return nil
	}
	rest, err := io.ReadAll(resp.Body)
	switch {
	case k.end == whole && err == nil && len(rest) == 0:
	case k.end == failed && err == nil && string(rest) == k.failure():
	case k.end != whole && k.end != failed && (err != nil || strings.Contains(string(rest), `"error"`)):
	default:
		return fmt.Errorf("%s: after what passes came %q (%w)", k.end, rest, err)
	}
	return nil
}

func TestTheTestsOwnBillingRuleIsRight(t *testing.T) {
	t.Parallel()
	text := func(words string) utterance { return utterance{content: true, text: words} }
	in, out := &tokens{Input: 100}, &tokens{Output: 50, Reasoning: 10}
	for _, c := range []struct {
		name  string
		talk  *talk
		want  tokens
		ended string
		usage string
	}{
		{"reported", &talk{end: whole, said: []utterance{{input: in, opening: 1}, text("abc"), {output: out}, {last: true}}}, tokens{Input: 100, Output: 50, Reasoning: 10}, "complete", "reported"},
		{"not reported", &talk{end: whole, asks: "four", said: []utterance{text("abcd"), {last: true}}}, tokens{Input: 2, Output: 2}, "complete", "estimated"},
		{"left early", &talk{end: left, said: []utterance{{input: in, opening: 1}, text("abcdefg")}}, tokens{Input: 100, Output: 3}, "client_gone", "estimated"},
		{"left before it began", &talk{end: left, asks: "seven b", said: []utterance{{}}}, tokens{Input: 3}, "client_gone", "estimated"},
		{"left when more was asked than reported", &talk{end: left, asks: strings.Repeat("x", 600), said: []utterance{{input: in}, text("abc"), {output: out}}}, tokens{Input: 200, Output: 50, Reasoning: 10}, "client_gone", "estimated"},
		{"torn before more than an empty block", &talk{end: torn, said: []utterance{{input: in, opening: 1}, {}}}, tokens{}, "upstream_error", "none"},
		{"more claimed than was asked for", &talk{end: whole, said: []utterance{{input: in}, text("abc"), {output: &tokens{Output: 5000}}, {last: true}}}, tokens{Input: 100, Output: 2048}, "complete", "reported"},
		{"torn before it began", &talk{end: torn, said: []utterance{{input: in, opening: 1}}}, tokens{}, "upstream_error", "none"},
		{"torn after its report", &talk{end: torn, said: []utterance{{input: in, opening: 1}, text("abc"), {output: out}}}, tokens{Input: 100, Output: 50, Reasoning: 10}, "upstream_error", "reported"},
	} {
		c.talk.stop, c.talk.most = len(c.talk.said), 2048
		if got, ended, usage := c.talk.charge(); got != c.want || ended != c.ended || usage != c.usage {
			t.Errorf("%s: %+v %s %s, want %+v %s %s", c.name, got, ended, usage, c.want, c.ended, c.usage)
		}
	}
}
