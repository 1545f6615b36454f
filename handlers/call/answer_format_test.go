package call

import (
	"maps"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// sampleAnswer is an answer of a route, and what must be read from it.
type sampleAnswer struct {
	body             string
	finished, failed bool
	tokens           usage.Tokens
}

// whole, broken and cut return samples of these ends.
func whole(body string, t usage.Tokens) sampleAnswer { return sampleAnswer{body, true, false, t} }
func broken(body string) sampleAnswer                { return sampleAnswer{body: body, failed: true} }
func cut(body string) sampleAnswer                   { return sampleAnswer{body: body} }

// sse returns events of a stream.
func sse(data ...string) string { return "data: " + strings.Join(data, "\n\ndata: ") + "\n\n" }

// samples has answers of each charged route: complete, incomplete, failed and cut. It does not depend on
// the rows of the routes, so that a row with another format fails.
func samples() map[string][]sampleAnswer {
	text := usage.Tokens{Input: 7, Output: 3}
	const start = `{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":1}}}`
	delta := `{"type":"message_delta","delta":{"stop_reason":"max_tokens"},"usage":{"output_tokens":3}}`
	list := map[string][]sampleAnswer{
		"/v1/messages": {
			whole(`{"usage":{"input_tokens":7,"output_tokens":3,"prompt_tokens":0,"completion_tokens":0}}`, text),
			whole(sse(start, delta, `{"type":"message_stop"}`), text),
			cut(sse(start, delta, "[DONE]")), cut(`{"usage":{"input_tokens":7,`), broken(sse(`{"type":"error","error":{"type":"overloaded_error"}}`)),
		},
		"/v1/chat/completions": {
			whole(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"input_tokens":0,"output_tokens":0}}`, text),
			whole(sse(`{"choices":[{"index":0,"delta":{},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`), text),
			whole(sse(`{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}`, "[DONE]"), text),
			cut(sse(`{"choices":[{"index":0,"delta":{}}]}`, `{"type":"message_stop"}`)), cut(`{"choices":[`), broken(sse(`{"error":{}}`)),
		},
		"/v1/responses": {
			whole(`{"usage":{"input_tokens":7,"output_tokens":3}}`, text),
			whole(sse(`{"type":"response.completed","response":{"usage":{"input_tokens":7,"output_tokens":3}}}`), text),
			whole(sse(`{"type":"response.incomplete","response":{"usage":{"input_tokens":7,"output_tokens":3}}}`), text),
			cut(sse(`{"choices":[{"index":0,"finish_reason":"stop"}]}`)), cut(sse(`{"type":"response.created","response":{"usage":null}}`)),
			cut(`{"output":[`), broken(sse(`{"type":"response.failed","response":{"error":{"code":"x"},"usage":null}}`)),
		},
		"/v1/embeddings": {
			whole(`{"data":[],"usage":{"total_tokens":7}}`, usage.Tokens{Input: 7}),
			cut(`{"data":[`), broken(`{"error":{}`),
		},
		"/v1/images/generations": {
			whole(`{"data":[{"b64_json":"QUJD"}],"usage":{"input_tokens":7,"output_tokens":3}}`, usage.Tokens{Input: 7, ImageOutput: 3}),
			whole(sse(`{"type":"image_generation.completed","b64_json":"QUJD","usage":{"input_tokens":7,"output_tokens":3}}`), usage.Tokens{Input: 7, ImageOutput: 3}),
			cut(sse(`{"type":"image_generation.partial_image","b64_json":"QUJD"}`)), cut(`{"data":[`), broken(sse(`{"type":"error","error":{}}`)),
		},
		"/v1/audio/speech": {
			whole(sse(`{"type":"speech.audio.done","usage":{"input_tokens":7,"output_tokens":3}}`), usage.Tokens{Input: 7, AudioOutput: 3}),
			cut(sse(`{"type":"speech.audio.delta","audio":"QUJD"}`)), broken(sse(`{"type":"error","error":{}}`)),
		},
		"/v1/audio/transcriptions": {
			whole(`{"text":"x","usage":{"input_tokens":7,"output_tokens":3}}`, usage.Tokens{AudioInput: 7, Output: 3}),
			whole(sse(`{"type":"transcript.text.done","text":"x","usage":{"input_tokens":7,"output_tokens":3}}`), usage.Tokens{AudioInput: 7, Output: 3}),
			cut(sse(`{"type":"transcript.text.delta","delta":"x"}`)), cut(`{"text":`), broken(sse(`{"type":"error","error":{}}`)),
		},
	}
	for path, as := range map[string]string{
		"/v1/completions": "/v1/chat/completions", "/v1/responses/compact": "/v1/responses", "/v1/moderations": "/v1/embeddings",
		"/v1/rerank": "/v1/embeddings", "/v2/rerank": "/v1/embeddings", "/v1/images/edits": "/v1/images/generations",
		"/v1/audio/translations": "/v1/audio/transcriptions",
	} {
		list[path] = list[as]
	}
	return list
}

func TestEveryRouteReadsTheUsageAndTheEndOfItsAnswers(t *testing.T) {
	t.Parallel()
	left := samples()
	all := maps.Clone(left)
	for _, rt := range allRoutes {
		if rt.answer == nil {
			t.Errorf("%s %s declares no answer", rt.Method, rt.Path)
			continue
		}
		if rt.free {
			continue
		}
		if len(all[rt.Path]) == 0 {
			t.Errorf("there are no samples of %s", rt.Path)
		}
		delete(left, rt.Path)
		for _, s := range all[rt.Path] {
			r := usage.New(rt.answer, strings.HasPrefix(s.body, "data:"), "")
			r.Wants(1)
			r.Write([]byte(s.body))
			r.Close()
			tokens, _, _ := r.Tokens()
			if r.Finished() != s.finished || r.Failed() != s.failed || s.finished && tokens != s.tokens {
				t.Errorf("%s: %s: finished %v, failed %v, %+v; want %v, %v, %+v", rt.Path, s.body, r.Finished(), r.Failed(), tokens, s.finished, s.failed, s.tokens)
			}
		}
	}
	for path := range left {
		t.Errorf("%s is no charged route", path)
	}
}
