package call_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// linesOf returns the data of the events of a stream, one per line.
func linesOf(events ...string) string {
	var lines strings.Builder
	for line := range strings.Lines(strings.Join(events, "")) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && !strings.HasPrefix(data, "[") {
			lines.WriteString(data)
		}
	}
	return lines.String()
}

func TestStreamUsageIsReadInAnyMediaTypeAndForm(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	as := func(media, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Content-Type"] = nil
			if media != "" {
				w.Header().Set("Content-Type", media)
			}
			for _, portion := range cuts(text, uint64(len(text))) {
				gatetest.Send(w, portion)
			}
		}
	}
	chatStream := append(append([]string(nil), chatChunks...), usageChunk)
	calls := make(map[string]reported)
	for _, media := range []string{"application/x-ndjson", "application/jsonl", "application/json", "application/stream+json", "text/plain", "text/event-stream", ""} {
		for form, separated := range map[string]func(string) string{
			"lines":         func(lines string) string { return lines },
			"without lines": func(lines string) string { return strings.ReplaceAll(lines, "\n", "") },
			"JSON sequence": func(lines string) string { return "\x1e" + strings.ReplaceAll(lines, "\n", "\n\x1e") },
			"an array": func(lines string) string {
				return "[" + strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",\n") + "]"
			},
			"a mark before":   func(lines string) string { return "\ufeff" + lines },
			"with empty ones": func(lines string) string { return strings.ReplaceAll(lines, "\n", "\r\n\r\n") },
		} {
			if form == "JSON sequence" && media == "text/event-stream" {
				continue // an event stream cannot begin like this
			}
			calls["messages, "+form+" as "+media] = reported{messages, streamed, as(media, separated(linesOf(messageEvents...))), 25 + 150, "reported"}
			calls["chat, "+form+" as "+media] = reported{chat, streamed, as(media, separated(linesOf(chatStream...))), 7 + 20, "reported"}
		}
		calls["a whole answer as "+media] = reported{chat, streamed, as(media, chatAnswer), 9 + 40, "reported"}
		calls["an answer with a mark as "+media] = reported{messages, "", as(media, "\ufeff"+messageAnswer), 9 + 40, "reported"}
		calls["an answer and another after it as "+media] = reported{messages, "", as(media, messageAnswer+"\n{}"), 9 + 40, "reported"}
		calls["events with a mark as "+media] = reported{chat, streamed, as(media, "\ufeff"+strings.Join(chatStream, "")+doneChunk), 7 + 20, "reported"}
	}
	charges(t, g, calls)
	g.Verify(t)
}

func TestTextAroundACompleteAnswerIsIgnored(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	packed := gzipped(t, messageAnswer)
	var opened bytes.Buffer // compressed data without its end, which can still be decompressed
	w := gzip.NewWriter(&opened)
	fmt.Fprint(w, messageAnswer)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	const part = `{"content":[{"type":"text","text":"Hello`
	for name, c := range map[string]struct {
		encoding, body string
		cut            bool
		cost           money.Amount
		basis          string
	}{
		"a byte order mark":            {"", "\ufeff" + messageAnswer, false, 49, "reported"},
		"the same JSON twice":          {"", messageAnswer + messageAnswer, false, 49, "reported"},
		"a text that is not JSON":      {"", messageAnswer + "\n[DONE]", false, 49, "reported"},
		"an extra bracket":             {"", messageAnswer + "}", false, 49, "reported"},
		"a word":                       {"", messageAnswer + "\nOK", false, 49, "reported"},
		"words":                        {"", messageAnswer + "\nserved by proxy-1\n", false, 49, "reported"},
		"a number":                     {"", messageAnswer + "\r\n0", false, 49, "reported"},
		"a comment":                    {"", messageAnswer + "<!-- id: 12, \"proxy\" -->", false, 49, "reported"},
		"a word alone":                 {"", "OK", false, 2, "estimated"},
		"a word in an array":           {"", messageAnswer + "[OK", true, 49, "reported"},
		"a compression without an end": {"gzip", opened.String(), false, 49, "reported"},
		"invalid JSON":                 {"", part + `"]]`, false, 2 + 20, "estimated"},
		"incomplete JSON":              {"", part, true, 2 + 20, "estimated"},
		"a second incomplete JSON":     {"", messageAnswer + part, true, 9 + 60, "estimated"},
		"a compression cut short":      {"gzip", packed[:len(packed)-30], true, 2 + 40, "estimated"},
		"a compression cut shorter":    {"gzip", packed[:5], true, 0, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			key := g.NewKey(t, nil)
			g.Credit(t, key.UserID, "1.00")
			model := "priced " + name
			g.Backend.On(model, func(w http.ResponseWriter, r *http.Request) {
				if c.encoding != "" {
					w.Header().Set("Content-Encoding", c.encoding)
				}
				gatetest.Then(gatetest.JSON(200, c.body), flush)(w, r)
			})
			got := g.Do(t, http.MethodPost, messages, headersFor(messages, key.Secret)+"Accept-Encoding: gzip", bodyFor(messages, model, ""))
			if (got.Err != nil) != c.cut || got.Body != c.body {
				t.Errorf("the caller got (%v) %q", got.Err, got.Body)
			}
			line := g.CallLine(t, got.RequestID())
			if line.Text("usage") != c.basis || line.Text("ended") != map[bool]string{true: "upstream_error", false: "complete"}[c.cut] {
				t.Errorf("logged %v", line)
			}
			if w := g.WalletAtRest(t, key.UserID); w.Balance != money.Unit-c.cost {
				t.Errorf("the wallet has %v, want a charge of %v", w.Balance, c.cost)
			}
		})
	}
	g.Verify(t)
}

func TestAllDeliveredTextCountsTowardTheEstimate(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	const thirty = "a text that has 30 bytes in it"
	calls := make(map[string]reported)
	for name, delta := range map[string]string{
		"content":            `"content":"%s"`,
		"parts of content":   `"content":[{"type":"thinking","thinking":[{"type":"text","text":"%s"}]}]`,
		"refusal":            `"refusal":"%s"`,
		"reasoning":          `"reasoning":"%s"`,
		"reasoning_content":  `"reasoning_content":"%s"`,
		"reasoning_text":     `"reasoning_text":"%s"`,
		"thinking":           `"thinking":"%s"`,
		"thinking_blocks":    `"thinking_blocks":[{"type":"thinking","thinking":"%s","signature":"c2lnbmF0dXJl"}]`,
		"thought":            `"thought":{"summary":"%s","id":"thought_1"}`,
		"reasoning_details":  `"reasoning_details":[{"type":"reasoning.text","text":"%s","format":"anthropic-claude-v1","signature":"abc","index":0,"id":"rs_1"}]`,
		"summaries":          `"reasoning_details":[{"type":"reasoning.summary","summary":"%s","index":0}]`,
		"twice":              `"reasoning":"%[1]s","reasoning_details":[{"type":"reasoning.text","text":"%[1]s"}]`,
		"three times":        `"reasoning_content":"%[1]s","thinking_blocks":[{"type":"thinking","thinking":"%[1]s"}],"reasoning_details":[{"text":"%[1]s"}]`,
		"transcript":         `"audio":{"id":"audio_1","transcript":"%s"}`,
		"arguments":          `"tool_calls":[{"index":0,"function":{"arguments":"%s"}}]`,
		"legacy arguments":   `"function_call":{"arguments":"%s"}`,
		"input of a tool":    `"tool_calls":[{"index":0,"type":"custom","custom":{"input":"%s"}}]`,
		"annotations":        `"annotations":[{"type":"url_citation","url_citation":{"url":"https://a.example","content":"%s"}}]`,
		"an unknown member":  `"monologue":{"parts":[{"kind_id":"a","words":"%s"}]}`,
		"with other members": `"role":"assistant","content":"%s","message_id":"0123456789","logprobs":{"content":[{"token":"0123456789"}]}`,
	} {
		delta = fmt.Sprintf(delta, thirty)
		calls["chat "+name] = reported{chat, streamed, gatetest.Stream(chatChunks[0], chatChunk(delta), chatChunks[2], doneChunk), 2 + 100, "estimated"}
		calls["whole chat "+name] = reported{chat, "", gatetest.JSON(200, `{"choices":[{"index":0,"message":{`+delta+`},"finish_reason":"stop"}]}`), 2 + 100, "estimated"}
		calls["chat as lines "+name] = reported{chat, streamed, gatetest.Body(200, "application/x-ndjson", linesOf(chatChunks[0], chatChunk(delta), chatChunks[2])), 2 + 100, "estimated"}
	}
	event := func(members string) string {
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{" + members + "}}\n\n"
	}
	for name, delta := range map[string]string{
		"text": `"type":"text_delta","text":"%s"`, "thinking": `"type":"thinking_delta","thinking":"%s"`, "json": `"type":"input_json_delta","partial_json":"%s"`,
		"compaction": `"type":"compaction_delta","content":"%s"`, "reasoning_content": `"reasoning_content":"%s"`,
	} {
		delta = fmt.Sprintf(delta, thirty)
		calls["messages "+name] = reported{messages, streamed, gatetest.Stream("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n", event(delta), messageEvents[7]), 2 + 100, "estimated"}
	}
	calls["completion with reasoning"] = reported{completions, streamed, gatetest.Stream("data: {\"choices\":[{\"index\":0,\"text\":\"\",\"reasoning\":\""+thirty+"\",\"finish_reason\":\"stop\"}]}\n\n", doneChunk), 2 + 100, "estimated"}
	calls["sealed reasoning alone"] = reported{chat, streamed, gatetest.Stream(chatChunks[0], chatChunk(`"reasoning_details":[{"type":"reasoning.encrypted","data":"c2VhbGVk"}]`), chatChunks[2], doneChunk), 2, "estimated"}
	calls["a role alone"] = reported{chat, streamed, gatetest.Stream(chatChunks[0], chatChunk(`"role":"assistant","message_id":"m1","content":null,"annotations":[]`), chatChunks[2], doneChunk), 0, "none"}
	charges(t, g, calls)
	g.Verify(t)
}
