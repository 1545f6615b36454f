package call_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// cuts splits a text at random positions, which are the same for the same seed.
func cuts(text string, seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	var portions []string
	for len(text) > 0 {
		n := min(len(text), 1+rng.IntN(90))
		if rng.IntN(4) == 0 {
			n = 1
		}
		portions = append(portions, text[:n])
		text = text[n:]
	}
	return portions
}

func TestStreamsAreForwardedByteForByte(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	whole := map[string]string{
		messages: strings.Join(messageEvents, ""),
		chat:     strings.Join(chatChunks, "") + usageChunk + doneChunk,
	}
	windows := func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }
	comments := func(s string) string { return ": OPENROUTER PROCESSING\n\n" + s + ": end\n\n" }
	for path, text := range whole {
		for name, form := range map[string]func(string) string{"LF": strings.Clone, "CRLF": windows, "comments": comments} {
			want := form(text)
			for seed := range uint64(6) {
				t.Run(fmt.Sprintf("%s %s %d", path, name, seed), func(t *testing.T) {
					t.Parallel()
					model := t.Name()
					g.Backend.On(model, gatetest.Stream(cuts(want, seed)...))
					// The caller requests usage, so the gateway adds and removes nothing.
					got := post(t, g, path, key, model, `,"stream":true,"stream_options":{"include_usage":true}`)
					if got.Body != want || got.Err != nil || got.Header.Get("Content-Type") != "text/event-stream" {
						t.Errorf("the caller got (%v)\n%q\nwant\n%q", got.Err, got.Body, want)
					}
					if path == messages {
						wantCall(t, g, got, "complete", "reported", 25, 15)
					} else {
						wantCall(t, g, got, "complete", "reported", 7, 2)
					}
				})
			}
		}
	}
}

func TestEachEventIsFlushedImmediately(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for path, events := range map[string][]string{messages: messageEvents, chat: append(chatChunks, doneChunk)} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			next := make(chan struct{})
			g.Backend.On(path, func(w http.ResponseWriter, _ *http.Request) {
				gatetest.Events(w)
				for _, event := range events {
					gatetest.Send(w, event)
					<-next // the next event is sent after the caller has received this one
				}
			})
			resp := open(t.Context(), t, g, path, key, path, streamed)
			for _, event := range events {
				got := make([]byte, len(event))
				if _, err := fullRead(resp, got); err != nil || string(got) != event {
					t.Fatalf("read %q (%v), want %q", got, err, event)
				}
				next <- struct{}{}
			}
		})
	}
}

func fullRead(resp *http.Response, p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		var m int
		m, err = resp.Body.Read(p[n:])
		n += m
	}
	if n == len(p) {
		err = nil
	}
	return n, err
}

func TestAnUnrequestedUsageChunkIsRemoved(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	const include = `"include_usage":true`
	for _, path := range []string{chat, completions} {
		first := bodyFor(path, "MODEL", "")
		first = first[1 : len(first)-1] // the members of a valid body
		for name, c := range map[string]struct {
			body, sent string
			added      bool // the gateway requested the chunk
		}{
			"absent":         {`{` + first + `,"stream":true}`, `{"stream_options":{"include_usage":true},` + first + `,"stream":true}`, true},
			"absent, spaced": {" {\n " + first + " ,\t\"stream\" : true } \n", ` {"stream_options":{"include_usage":true},` + "\n " + first + " ,\t\"stream\" : true } \n", true},
			"far from the start": {strings.Repeat(" ", 200) + `{` + first + `,"stream":true}`,
				strings.Repeat(" ", 200) + `{"stream_options":{"include_usage":true},` + first + `,"stream":true}`, true},
			"empty":         {`{` + first + `,"stream":true,"stream_options":{}}`, `{` + first + `,"stream":true,"stream_options":{` + include + `}}`, true},
			"empty, spaced": {`{"stream_options": { } ,` + first + `,"stream":true}`, `{"stream_options": {` + include + ` } ,` + first + `,"stream":true}`, true},
			"other":         {`{` + first + `,"stream":true,"stream_options":{"x":[1.0]}}`, `{` + first + `,"stream":true,"stream_options":{` + include + `,"x":[1.0]}}`, true},
			"null":          {`{` + first + `,"stream_options":null,"stream":true}`, `{` + first + `,"stream_options":{` + include + `},"stream":true}`, true},
			"true":          {`{` + first + `,"stream_options":{"include_usage":true},"stream":true}`, "", false},
			"false":         {`{` + first + `,"stream_options":{"include_usage":false},"stream":true}`, "", false},
			"escaped name":  {`{` + first + `,"stream_options":{"include_us\u0061ge":true},"stream":true}`, "", false},
			"not a stream":  {`{` + first + `}`, "", false},
			"stream:false":  {`{` + first + `,"stream":false}`, "", false},
			"a large body":  {`{"x":"` + strings.Repeat("x", 300_000) + `",` + first + `,"stream":true}`, `{"stream_options":{"include_usage":true},"x":"` + strings.Repeat("x", 300_000) + `",` + first + `,"stream":true}`, true},
		} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				model := "usage " + path + name
				named := func(s string) string { return strings.Replace(s, "MODEL", model, 1) }
				want := strings.Join(chatChunks, "") + doneChunk
				g.Backend.On(model, gatetest.Stream(cuts(strings.Join(chatChunks, "")+usageChunk+doneChunk, 7)...))
				if !c.added {
					c.sent = c.body
					want = strings.Join(chatChunks, "") + usageChunk + doneChunk
				}
				got := g.Do(t, http.MethodPost, path, headersFor(path, key), named(c.body))
				if got.Body != want {
					t.Errorf("the caller got\n%s\nwant\n%s", got.Body, want)
				}
				if seen := g.Backend.Seen(model); len(seen) != 1 || string(seen[0].Body) != named(c.sent) {
					t.Errorf("the backend saw\n%.900s\nwant\n%.900s", seen, named(c.sent))
				} else if seen[0].Header.Get("Content-Length") != itoa(len(named(c.sent))) {
					t.Errorf("Content-Length: %s", seen[0].Header.Get("Content-Length"))
				}
				wantCall(t, g, got, "complete", "reported", 7, 2)
			})
		}
	}
}

func TestUnrequestedNullUsageIsRemoved(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	plain := strings.Join(chatChunks, "")
	withNull := strings.ReplaceAll(plain, "}]}\n", "}],\"usage\":null}\n")
	for seed := range uint64(5) {
		model := "null " + itoa(int(seed))
		g.Backend.On(model, gatetest.Stream(cuts(withNull+usageChunk+doneChunk, seed)...))
		got := post(t, g, chat, key, model, streamed)
		if got.Body != plain+doneChunk {
			t.Errorf("the caller got\n%s\nwant\n%s", got.Body, plain+doneChunk)
		}
		wantCall(t, g, got, "complete", "reported", 7, 2)
		if got := post(t, g, chat, key, model, streamed+`,"stream_options":{"include_usage":true}`); got.Body != withNull+usageChunk+doneChunk {
			t.Errorf("with include_usage the caller got\n%s", got.Body)
		}
	}
}

func TestAStreamWithoutUsageIsEstimated(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	g.Backend.On("unreported", gatetest.Stream(append(chatChunks, doneChunk)...))
	got := post(t, g, chat, key, "unreported", streamed)
	wantCall(t, g, got, "complete", "estimated", 2, 2) // "hello" and "Hello" have five bytes each; a third of that is rounded up to 2
}

func TestAnEncodedStreamPassesUnchanged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "limits {\n ping 20ms\n}", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	packed := gzipped(t, strings.Join(messageEvents, ""))
	quiet := make(chan struct{})
	g.Backend.On("packed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip") // although the request did not accept gzip
		gatetest.Events(w)
		<-quiet
		gatetest.Send(w, packed)
	})
	resp := open(t.Context(), t, g, messages, key, "packed", streamed)
	awaitPing(t, g, key) // a ping on another stream shows that the interval has passed
	close(quiet)
	var got bytes.Buffer
	if _, err := got.ReadFrom(resp.Body); err != nil || got.String() != packed {
		t.Errorf("the compressed bytes were changed (%v): %d bytes, want %d", err, got.Len(), len(packed))
	}
	wantCall(t, g, gatetest.Answer{Header: resp.Header}, "complete", "reported", 25, 15)
}

// longLine returns an event of a stream of path with length bytes of text in one line.
func longLine(path string, length int) string {
	text := strings.Repeat("0123456789abcdef", length/16)
	if path == messages {
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"" + text + "\"}}\n\n"
	}
	return "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + text + "\"},\"finish_reason\":null}]}\n\n"
}

func TestALineOfAStreamMayHave16MiB(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	for _, path := range []string{messages, chat} {
		key := g.NewKey(t, nil)
		g.Credit(t, key.UserID, "1.00")
		first, rest, cost := messageEvents[0], messageEvents[4:], money.Amount(25+15*10)
		if path == chat {
			first, rest, cost = chatChunks[0], []string{chatChunks[2], usageChunk, doneChunk}, 7+2*10
		}

		model := "priced long " + path
		line := longLine(path, 16<<20-1024)
		g.Backend.On(model, gatetest.Stream(append([]string{first, line}, rest...)...))
		got := post(t, g, path, key.Secret, model, streamed)
		want := strings.Replace(first+line+strings.Join(rest, ""), usageChunk, "", 1)
		if got.Err != nil || got.Body != want {
			t.Fatalf("%s: %d bytes of %d arrived (%v)", path, len(got.Body), len(want), got.Err)
		}
		if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-cost {
			t.Errorf("%s: the wallet has %v, want a charge of %v", path, w.Balance, cost)
		}

		// A longer line ends the call, which is charged as an incomplete answer. The estimate
		// is limited to max_tokens, or to max_output of the model.
		model, cost = "priced too long "+path, money.Amount(25+64*10)
		if path == chat {
			cost = 2 + 1000*10
		}
		g.Backend.On(model, gatetest.Stream(append([]string{first, longLine(path, 17<<20)}, rest...)...))
		got = post(t, g, path, key.Secret, model, streamed)
		if got.Err == nil {
			t.Errorf("%s: a line of 17 MiB passed", path)
		}
		line17 := g.CallLine(t, got.RequestID())
		if line17.Text("ended") != "upstream_error" || line17.Text("cost") != cost.String() {
			t.Errorf("%s: logged %v, want a cost of %v", path, line17, cost)
		}
		g.WalletAtRest(t, key.UserID)
		g.Verify(t)
	}
}
