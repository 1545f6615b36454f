package call_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

const (
	responses  = "/v1/responses"
	embeddings = "/v1/embeddings"
)

// responsePrices are prices whose costs are easy to calculate: a token of input costs 1 nano-unit,
// one of output 10.
const responsePrices = `
	price priced* {
		input 0.001
		output 0.01
		cache_read 0.0001
		context 10000
		max_output 1000
	}
	price searching* {
		input 0.001
		output 0.01
		context 10000
		max_output 1000
		call web_search 0.5 max 3
	}
	price embed* {
		input 0.001
		output 0
		context 100
	}
	price checked* {
		request 0.25
	}
	price omni-moderation-latest {
		request 0.125
	}
`

// responseEvent returns an event of a stream of responses.
func responseEvent(kind, members string) string {
	return fmt.Sprintf("event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, members)
}

// responseStream is a stream of /v1/responses with one event per element.
var responseStream = []string{
	responseEvent("response.created", `"sequence_number":0,"response":{"id":"resp_1","status":"in_progress","output":[],"usage":null,"service_tier":"auto"}`),
	responseEvent("response.output_item.added", `"sequence_number":1,"item":{"type":"message","id":"msg_1","content":[]}`),
	responseEvent("response.output_text.delta", `"sequence_number":2,"item_id":"msg_1","delta":"Hello \u00fc there"`),
	responseEvent("response.output_text.done", `"sequence_number":3,"text":"Hello \u00fc there"`),
	responseEvent("response.completed", `"sequence_number":4,"response":{"id":"resp_1","status":"completed","output":[{"type":"message","id":"msg_1",`+
		`"content":[{"type":"output_text","text":"Hello \u00fc there"}]}],"usage":{"input_tokens":25,"input_tokens_details":{"cached_tokens":20},`+
		`"output_tokens":15,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":40}}`),
}

// responseCalls starts a gateway with these prices and a user who has a large balance.
func responseCalls(t *testing.T) (*gatetest.Gate, gatetest.Key) {
	t.Helper()
	g := gatetest.Start(t, gatetest.Config{App: responsePrices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1000.00")
	return g, key
}

// respond makes a call to path.
func respond(t *testing.T, g *gatetest.Gate, path, key, body string) gatetest.Answer {
	t.Helper()
	return g.Do(t, http.MethodPost, path, headersFor(path, key), body)
}

func TestResponsesAreForwardedByteForByteAndCharged(t *testing.T) {
	g, key := responseCalls(t)
	stream := strings.Join(responseStream, "")
	g.Backend.On("priced-stream", gatetest.Stream(cuts(stream, 1)...))
	body := `{"model":"priced-stream", "input":[{"role":"user","content":[{"type":"input_text","text":"hello"}]}],` +
		`"stream":true,"store":false,"include":["reasoning.encrypted_content"],"prompt_cache_key":"k"}`
	got := respond(t, g, responses, key.Secret, body)
	if got.Body != stream || got.Header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("the caller got\n%q\nwant\n%q", got.Body, stream)
	}
	if seen := g.Backend.Seen("priced-stream"); len(seen) != 1 || string(seen[0].Body) != body {
		t.Errorf("the backend got %+v, want %s", seen, body)
	}
	line := g.CallLine(t, got.RequestID())
	// 5 fresh at 1, 20 cached at 0.1, 15 of output at 10 nano-units.
	if line.Text("route") != "responses" || line.Text("ended") != "complete" || line.Text("usage") != "reported" || line.Text("cost") != "0.000000157" {
		t.Errorf("the log line is %v", line)
	}

	whole := `{"id":"resp_1","object":"response","status":"completed","error":null,"output":[{"type":"message","content":[{"type":"output_text","text":"Hi"}]}],` +
		`"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}`
	g.Backend.On("priced-json", gatetest.JSON(http.StatusOK, whole))
	got = respond(t, g, responses, key.Secret, `{"model":"priced-json","input":"hello","max_output_tokens":64}`)
	if got.Body != whole {
		t.Errorf("the caller got %s", got.Body)
	}
	wantCall(t, g, got, "complete", "reported", 9, 4)
	g.Verify(t)
}

func TestABrokenStreamOfResponsesEndsWithAFlatError(t *testing.T) {
	g, key := responseCalls(t)
	g.Backend.On("priced", func(w http.ResponseWriter, _ *http.Request) {
		gatetest.Events(w)
		gatetest.Send(w, strings.Join(responseStream[:3], ""))
		panic(http.ErrAbortHandler)
	})
	got := respond(t, g, responses, key.Secret, `{"model":"priced","input":"hello","stream":true,"max_output_tokens":64}`)
	want := strings.Join(responseStream[:3], "") + "event: error\ndata: {\"type\":\"error\",\"code\":\"UPSTREAM_UNAVAILABLE\"," +
		"\"message\":\"the backend ended its answer before it was complete\",\"param\":null,\"sequence_number\":0}\n\n"
	if got.Body != want {
		t.Errorf("the caller got\n%q\nwant\n%q", got.Body, want)
	}
	if line := g.CallLine(t, got.RequestID()); line.Text("ended") != "upstream_error" || line.Text("usage") != "estimated" {
		t.Errorf("the log line is %v", line)
	}
}

func TestAFailedResponseWithoutContentIsFree(t *testing.T) {
	g, key := responseCalls(t)
	failed := responseEvent("response.created", `"response":{"status":"in_progress","usage":null}`) +
		responseEvent("response.failed", `"response":{"status":"failed","error":{"code":"server_error","message":"no"},"usage":null}`)
	g.Backend.On("priced", gatetest.Stream(failed))
	got := respond(t, g, responses, key.Secret, `{"model":"priced","input":"hello","stream":true,"max_output_tokens":64}`)
	if line := g.CallLine(t, got.RequestID()); got.Body != failed || line.Text("ended") != "upstream_error" || line.Text("cost") != "0.00" {
		t.Errorf("the caller got %q, the log line is %v", got.Body, line)
	}
}

// TestAResponseWhoseCallerLeavesIsCharged leaves after the content has begun.
func TestAResponseWhoseCallerLeavesIsCharged(t *testing.T) {
	g, key := responseCalls(t)
	gone := make(chan struct{})
	g.Backend.On("priced", func(w http.ResponseWriter, r *http.Request) {
		gatetest.Events(w)
		gatetest.Send(w, strings.Join(responseStream[:3], ""))
		<-r.Context().Done()
		close(gone)
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	resp := g.Open(ctx, t, http.MethodPost, responses, headersFor(responses, key.Secret), `{"model":"priced","input":"`+strings.Repeat("x", 300)+`","stream":true,"max_output_tokens":64}`)
	first := make([]byte, 1)
	if _, err := resp.Body.Read(first); err != nil {
		t.Fatal(err)
	}
	leave()
	resp.Body.Close()
	<-gone
	line := g.CallLine(t, resp.Header.Get("X-Request-Id"))
	if line.Text("ended") != "client_gone" || line.Number("input") != 100 || line.Number("output") != 5 || line.Text("cost") != "0.00000015" {
		t.Errorf("the log line is %v", line)
	}
	g.Verify(t)
}

func TestServerToolsOfResponsesArePricedOrRefused(t *testing.T) {
	g, key := responseCalls(t)
	answer := `{"status":"completed","output":[{"type":"web_search_call","action":{"type":"search"}},{"type":"web_search_call","action":{"type":"open_page"}},` +
		`{"type":"message","content":[{"type":"output_text","text":"x"}]}],"usage":{"input_tokens":9,"output_tokens":4,"total_tokens":13}}`
	g.Backend.On("searching", gatetest.JSON(http.StatusOK, answer))
	for _, tool := range []string{"web_search", "web_search_2025_08_26", "web_search_preview"} {
		got := respond(t, g, responses, key.Secret, `{"model":"searching","input":"x","tools":[{"type":"`+tool+`","search_context_size":"low"}],"max_tool_calls":2}`)
		if cost := g.CallLine(t, got.RequestID()).Text("cost"); got.Status != http.StatusOK || cost != "0.500000049" {
			t.Errorf("%s: %d %s, charged %s", tool, got.Status, got.Body, cost)
		}
	}
	for name, c := range map[string]struct{ members, code, param string }{
		"a tool without a price":      {`"tools":[{"type":"file_search"}]`, "UNPRICED_OPTION", "tools[0].type"},
		"a stored vector store":       {`"tools":[{"type":"file_search","vector_store_ids":["vs_1"]}]`, "INVALID_PARAMETER", "tools[0].vector_store_ids"},
		"a stored container":          {`"tools":[{"type":"code_interpreter","container":"cntr_1"}]`, "INVALID_PARAMETER", "tools[0].container"},
		"an automatic container":      {`"tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`, "UNPRICED_OPTION", "tools[0].type"},
		"an earlier response":         {`"previous_response_id":"resp_1"`, "INVALID_PARAMETER", "previous_response_id"},
		"a conversation":              {`"conversation":"conv_1"`, "INVALID_PARAMETER", "conversation"},
		"a background response":       {`"background":true`, "INVALID_PARAMETER", "background"},
		"an unknown member":           {`"turbo":true`, "UNPRICED_OPTION", "turbo"},
		"a tier without a price":      {`"service_tier":"priority"`, "UNPRICED_OPTION", "service_tier"},
		"items as instructions":       {`"instructions":[{"type":"item_reference","id":"msg_1"}]`, "INVALID_PARAMETER", "instructions"},
		"a tool within a tool":        {`"tools":[{"type":"function","name":"t","tools":[{"type":"file_search"}]}]`, "UNPRICED_OPTION", "tools of tools[0]"},
		"uses of another dialect":     {`"tools":[{"type":"custom","name":"t","max_uses":1}]`, "UNPRICED_OPTION", "tools[0].max_uses"},
		"a bound that is not a bound": {`"max_output_tokens":0`, "INVALID_PARAMETER", "max_output_tokens"},
	} {
		input := `"input":"x",`
		if strings.Contains(c.members, `"input"`) {
			input = ""
		}
		got := respond(t, g, responses, key.Secret, `{"model":"priced",`+input+c.members+`}`)
		if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, `"code":"`+c.code+`"`) || !strings.Contains(got.Body, `"param":"`+c.param+`"`) {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	if seen := g.Backend.Seen("priced"); len(seen) > 0 {
		t.Errorf("the backend got %v", seen)
	}
}

func TestTheOtherRoutesOfResponses(t *testing.T) {
	g, key := responseCalls(t)
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, `{"object":"response.input_tokens","input_tokens":11}`))
	got := respond(t, g, responses+"/input_tokens", key.Secret, `{"model":"priced","input":"hello"}`)
	if got.Status != http.StatusOK || g.CallLine(t, got.RequestID()).Text("usage") != "none" {
		t.Errorf("a count is answered %d %s", got.Status, got.Body)
	}
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, `{"object":"response.compaction","output":[{"type":"compaction","encrypted_content":"x"}],"usage":{"input_tokens":30,"output_tokens":7,"total_tokens":37}}`))
	got = respond(t, g, responses+"/compact", key.Secret, `{"model":"priced","input":"hello"}`)
	wantCall(t, g, got, "complete", "reported", 30, 7)

	got = g.Do(t, http.MethodGet, responses, "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\nAuthorization: Bearer "+key.Secret, "")
	if got.Status != http.StatusUpgradeRequired || !strings.Contains(got.Body, `"code":"UPGRADE_REQUIRED"`) || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("a WebSocket is answered %d %s", got.Status, got.Body)
	}
	if method := g.CallLine(t, got.RequestID()).Text("method"); method != http.MethodGet {
		t.Errorf("the method is logged as %q", method)
	}
	for _, path := range []string{responses + "/resp_1", responses + "/resp_1/cancel", "/v1/conversations", "/v1/batches"} {
		got = g.Do(t, http.MethodPost, path, "Authorization: Bearer "+key.Secret, "{}")
		if got.Status != http.StatusNotFound || !strings.Contains(got.Body, "POST is served at ") || !strings.Contains(got.Body, responses+",") {
			t.Errorf("%s is answered %d %s", path, got.Status, got.Body)
		}
	}
}

func TestEmbeddingsAreChargedByTheirInput(t *testing.T) {
	g, key := responseCalls(t)
	answer := func(usage string) string {
		return `{"object":"list","data":[{"object":"embedding","index":0,"embedding":"AACAPw=="}],"model":"m"` + usage + `}`
	}
	for name, c := range map[string]struct {
		path, members, answer string
		basis, cost           string
	}{
		"a text":              {embeddings, `"input":"hello","encoding_format":"base64","dimensions":1`, answer(`,"usage":{"prompt_tokens":8,"total_tokens":8}`), "reported", "0.000000008"},
		"tokens":              {embeddings, `"input":[[1,2,3],[4]]`, answer(``), "estimated", "0.000000004"},
		"texts without usage": {embeddings, `"input":["123456","123"]`, answer(``), "estimated", "0.000000003"},
		"more than a context": {embeddings, `"input":["` + strings.Repeat("x", 400) + `","` + strings.Repeat("y", 400) + `"]`, answer(`,"usage":{"prompt_tokens":190,"total_tokens":190}`), "reported", "0.00000019"},
		"a ranking":           {"/v1/rerank", `"query":"a b","documents":["b","c"],"top_n":1`, `{"results":[{"index":0,"relevance_score":0.5,"document":{"text":"b"}}],"usage":{"total_tokens":12}}`, "reported", "0.000000012"},
		"a query for each":    {"/v2/rerank", `"query":"abcdefghi","documents":["123456","123456","123456","123456"]`, `{"results":[]}`, "estimated", "0.000000026"},
		"zeros as a report":   {embeddings, `"input":"123456"`, answer(`,"usage":{"prompt_tokens":0,"total_tokens":0}`), "estimated", "0.000000002"},
		"a ranking of Cohere": {"/v2/rerank", `"query":"abc","documents":["123456"]`, `{"results":[],"meta":{"billed_units":{"search_units":1}}}`, "estimated", "0.000000004"},
	} {
		t.Run(name, func(t *testing.T) {
			model := "embed-" + modelName(strings.ReplaceAll(name, " ", "-"))
			g.Backend.On(model, gatetest.JSON(http.StatusOK, c.answer))
			got := respond(t, g, c.path, key.Secret, `{"model":"`+model+`",`+c.members+`}`)
			line := g.CallLine(t, got.RequestID())
			if got.Body != c.answer || line.Text("ended") != "complete" || line.Text("usage") != c.basis || line.Text("cost") != c.cost {
				t.Errorf("answered %d %s; the log line is %v", got.Status, got.Body, line)
			}
		})
	}
	g.Backend.On("checked", gatetest.JSON(http.StatusOK, `{"id":"modr-1","results":[{"flagged":false}]}`))
	got := respond(t, g, "/v1/moderations", key.Secret, `{"model":"checked","input":[{"type":"text","text":"hello"}]}`)
	if line := g.CallLine(t, got.RequestID()); line.Text("cost") != "0.25" {
		t.Errorf("a moderation is answered %s; the log line is %v", got.Body, line)
	}
	g.Backend.On("omni-moderation-latest", gatetest.JSON(http.StatusOK, `{"id":"modr-2","results":[{"flagged":false}]}`))
	for asked, sent := range map[string]string{
		` {"input":"hello"}`:               ` {"model":"omni-moderation-latest","input":"hello"}`,
		`{"input":"hello", "model": null}`: `{"input":"hello", "model": "omni-moderation-latest"}`,
	} {
		got = respond(t, g, "/v1/moderations", key.Secret, asked)
		if line := g.CallLine(t, got.RequestID()); got.Status != http.StatusOK || line.Text("model") != "omni-moderation-latest" || line.Text("cost") != "0.125" {
			t.Errorf("%s is answered %d %s; the log line is %v", asked, got.Status, got.Body, line)
		}
		if seen := g.Backend.Seen("omni-moderation-latest"); string(seen[len(seen)-1].Body) != sent {
			t.Errorf("%s: the backend has received %s", asked, seen[len(seen)-1].Body)
		}
	}
	got = respond(t, g, embeddings, key.Secret, `{"model":"embed-long","input":[`+strings.TrimSuffix(strings.Repeat("1,", 101), ",")+`]}`)
	if got.Status != http.StatusBadRequest || !strings.Contains(got.Body, "`input`: 101 tokens are more than this model reads; allowed: 100") {
		t.Errorf("a long input is answered %d %s", got.Status, got.Body)
	}
	g.Verify(t)
}

// TestUnusualAnswersOfResponses has answers of servers that differ from the vendor's documentation.
// The request has 3 bytes of text: a token of estimated input.
func TestUnusualAnswersOfResponses(t *testing.T) {
	const (
		usage  = `"usage":{"input_tokens":7,"output_tokens":2,"total_tokens":9}`
		items  = `"output":[{"type":"message","content":[{"type":"output_text","text":"Hello!"}]}]`
		failed = `"status":"failed","error":{"code":"server_error","message":"no"}`
		delta  = `data: {"delta":"Hello!","type":"response.output_text.delta"}` + "\n\n"
	)
	last := func(response string) string {
		return `data: {"response":{` + response + `},"type":"response.completed"}` + "\n\n"
	}
	chunk := func(members string) string { return `data: {` + members + `}` + "\n\n" }
	g, key := responseCalls(t)
	for name, c := range map[string]struct {
		answer        string
		ended, basis  string
		input, output float64
	}{
		"events without names":      {delta + last(usage), "complete", "reported", 7, 2},
		"lines that end in CRLF":    {strings.ReplaceAll(delta+last(usage), "\n", "\r\n"), "complete", "reported", 7, 2},
		"data in two lines":         {delta + "data: {\"response\":{" + usage + "},\ndata: \"type\":\"response.completed\"}\n\n", "complete", "reported", 7, 2},
		"no blank line at the end":  {strings.TrimSpace(delta + last(usage)), "complete", "reported", 7, 2},
		"several last events":       {delta + last(usage) + last(`"usage":{"input_tokens":1,"output_tokens":0,"total_tokens":1}`), "complete", "reported", 7, 2},
		"a last event without any":  {delta + last(usage) + last(`"usage":null`), "complete", "reported", 7, 2},
		"usage of zero":             {delta + last(`"usage":{"input_tokens":0,"output_tokens":0}`), "complete", "estimated", 1, 2},
		"negative usage":            {delta + last(`"usage":{"input_tokens":-5,"output_tokens":-1}`), "complete", "estimated", 1, 2},
		"no deltas":                 {last(items), "complete", "estimated", 1, 2},
		"an item and no last event": {`data: {"item":{"type":"message","content":[{"text":"Hello!"}]},"type":"response.output_item.done"}` + "\n\n", "upstream_error", "estimated", 1, 2},
		"a cut last event":          {delta + last(usage)[:60], "upstream_error", "estimated", 7, 2},
		"a failure after content":   {delta + `data: {"type":"response.failed","response":{` + failed + `,"usage":null}}` + "\n\n", "upstream_error", "estimated", 1, 2},
		"chunks of a chat":          {chunk(`"choices":[{"index":0,"delta":{"content":"Hello!"}}]`) + chunk(`"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2}`) + "data: [DONE]\n\n", "complete", "reported", 7, 2},
		"events of messages": {chunk(`"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}`) + chunk(`"type":"content_block_delta","delta":{"text":"Hello!"}`) +
			chunk(`"type":"message_delta","usage":{"output_tokens":2}`) + chunk(`"type":"message_stop"`), "complete", "reported", 7, 2},
		"JSON":             {`{"status":"completed",` + items + `,` + usage + `}`, "complete", "reported", 7, 2},
		"JSON of a chat":   {`{"choices":[{"message":{"content":"Hello!"}}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`, "complete", "reported", 7, 2},
		"JSON no usage":    {`{"status":"incomplete",` + items + `,"usage":null}`, "complete", "estimated", 1, 2},
		"a failure":        {`{` + failed + `,"output":[],"usage":null}`, "complete", "none", 0, 0},
		"a partial answer": {`{` + failed + `,` + items + `}`, "complete", "estimated", 1, 2},
	} {
		for _, asked := range []string{"true", "false"} {
			model := "priced-" + modelName(strings.ReplaceAll(name, " ", "-")) + "-" + asked
			g.Backend.On(model, func(w http.ResponseWriter, _ *http.Request) {
				if strings.HasPrefix(c.answer, "{") {
					w.Header().Set("Content-Type", "application/json")
				} else {
					gatetest.Events(w)
				}
				gatetest.Send(w, c.answer)
			})
			got := respond(t, g, responses, key.Secret, `{"model":"`+model+`","input":"abc","stream":`+asked+`}`)
			line := g.CallLine(t, got.RequestID())
			if line.Text("ended") != c.ended || line.Text("usage") != c.basis || line.Number("input") != c.input || line.Number("output") != c.output {
				t.Errorf("%s, asked for a stream %s: the log line is %v", name, asked, line)
			}
		}
	}
	g.Verify(t)
}
