package call_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestACompleteStreamIsChargedItsInputInEachDialect(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	const input = 2 // "hello"
	const gemini = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]}}]}\n\n"
	charges(t, g, map[string]reported{
		"another dialect":                 {chat, streamed, gatetest.Stream(gemini, doneChunk), input, "estimated"},
		"another dialect of completions":  {completions, streamed, gatetest.Stream(gemini, doneChunk), input, "estimated"},
		"text":                            {chat, streamed, gatetest.Stream("data: Hello\n\n", doneChunk), input, "estimated"},
		"text as another media type":      {chat, streamed, gatetest.Body(200, "text/plain", "data: Hello\n\n"+doneChunk), input, "estimated"},
		"only a finish reason":            {chat, streamed, gatetest.Stream(chatChunks[0], chatChunks[2], doneChunk), 0, "none"},
		"only the end":                    {chat, streamed, gatetest.Stream(doneChunk), 0, "none"},
		"only pings and the end":          {chat, streamed, gatetest.Stream(": ping\n\n", "data:\n\n", "event: ping\n\n", doneChunk), 0, "none"},
		"another dialect with its report": {chat, streamed, gatetest.Stream(gemini, usageChunk, doneChunk), 7 + 20, "reported"},
	})
	g.Verify(t)
}

// page is the answer of a proxy in front of a backend that is down.
const page = "<!DOCTYPE html>\n<html><head><script>x={\"text\":\"Hello\",\"usage\":{\"output_tokens\":900}}</script></head><body>We are back soon.</body></html>\n"

func TestAWebPageInsteadOfAnAnswerIsAFailedCall(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices + `
		price strict* {
			input 0.001
			output 0.01
			context 10000
			max_output 1000
			charge_failed_input on
		}
	`, Site: gatetest.Proxied})
	html := func(body string) http.HandlerFunc { return gatetest.Body(200, "text/html; charset=utf-8", body) }
	for name, c := range map[string]struct {
		script http.HandlerFunc
		page   bool
	}{
		"a page":                        {html(page), true},
		"XHTML":                         {gatetest.Body(200, "application/xhtml+xml", "\n<html></html>"), true},
		"a page with the type JSON":     {gatetest.Body(200, "application/json", page), true},
		"a page with a byte order mark": {gatetest.Body(200, "", "\ufeff"+page), true},
		"a page without tags":           {html("We are back soon."), true},
		"a page as a stream":            {gatetest.Stream(page), true},
		"a page in parts":               {gatetest.Then(gatetest.Body(200, "text/html", "<"), portions(page[1:2], page[2:])), true},
		"a compressed page":             {encoded("gzip", "text/html", gzipped(t, page)), true},
		"a page that cannot be read":    {encoded("br", "text/html", "compressed"), true},
		"an answer with the type HTML":  {html("\n" + chatAnswer), false},
		"a stream with the type HTML":   {html(strings.Join(chatChunks, "") + usageChunk + doneChunk), false},
		"an answer with the type text":  {gatetest.Body(200, "text/plain", "Hello"), false},
		"a thought with the type text":  {gatetest.Body(200, "text/plain", "<think>Hello</think>"), false},
		"an empty answer":               {html(""), false},
		"a list as an answer":           {html("[" + chatAnswer + "]"), false},
		"a compressed answer":           {encoded("gzip", "text/html", gzipped(t, chatAnswer)), false},
	} {
		for _, form := range []struct{ name, more string }{{"whole", ""}, {"streamed", streamed}} {
			for model, input := range map[string]money.Amount{"priced": 0, "strict": 2} {
				t.Run(name+" "+form.name+" "+model, func(t *testing.T) {
					t.Parallel()
					key := g.NewKey(t, nil)
					g.Credit(t, key.UserID, "1.00")
					model := modelName(model + t.Name())
					g.Backend.On(model, c.script)
					got := g.Do(t, http.MethodPost, chat, headersFor(chat, key.Secret)+"Accept-Encoding: gzip", bodyFor(chat, model, form.more))
					line, w := g.CallLine(t, got.RequestID()), g.WalletAtRest(t, key.UserID)
					if (line.Text("ended") == "upstream_error") != c.page {
						t.Errorf("logged %v", line)
					}
					if c.page && w.Balance != money.Unit-input {
						t.Errorf("the wallet has %v, want a charge of %v", w.Balance, input)
					}
					if got.Status != http.StatusOK || got.Err != nil && name != "a page as a stream" {
						t.Errorf("answered %d %q %v", got.Status, got.Body, got.Err)
					}
				})
			}
		}
	}
	g.Verify(t)
}

// encoded returns a backend that answers with a Content-Encoding.
func encoded(encoding, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", encoding)
		gatetest.Body(http.StatusOK, contentType, body)(w, r)
	}
}

func TestUnreportedMediaAreChargedByTheirLength(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: `
		price priced* {
			input 0.001
			output 0.01
			audio_output 0.1
			image_output 0.2
			context 10000
			max_output 20000
		}
	`, Site: gatetest.Proxied})
	const input = 2                       // "hello"
	speech := strings.Repeat("A", 64_000) // a second of pcm16
	sound := func(format string) string {
		return `,"modalities":["text","audio"],"audio":{"voice":"alloy","format":"` + format + `"}`
	}
	speechAnswer := func(members string) http.HandlerFunc {
		return gatetest.JSON(200, `{"choices":[{"index":0,"message":{"role":"assistant",`+members+`},"finish_reason":"stop"}]}`)
	}
	answer := speechAnswer(`"audio":{"id":"audio_1","data":"` + speech + `"}`)
	halves := gatetest.Stream(chatChunk(`"audio":{"id":"audio_1","data":"`+speech[:32_000]+`"}`), chatChunk(`"audio":{"data":"`+speech[32_000:]+`"}`), chatChunks[2], doneChunk)
	const drawn = `"images":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}]`
	charges(t, g, map[string]reported{
		"speech":                       {chat, sound("wav"), answer, input + 20*100, "estimated"},
		"speech in a stream":           {chat, streamed + sound("pcm16"), halves, input + 20*100, "estimated"},
		"compressed speech":            {chat, sound("opus"), answer, input + 256*100, "estimated"},
		"speech without a format":      {chat, `,"modalities":["text","audio"]`, answer, input + 256*100, "estimated"},
		"speech with its transcript":   {chat, sound("wav"), speechAnswer(`"audio":{"data":"` + speech + `","transcript":"Hello"}`), input + 20*100 + 2*10, "estimated"},
		"more than max_tokens":         {chat, `,"max_tokens":7` + sound("wav"), answer, input + 7*100, "estimated"},
		"speech with a report":         {chat, sound("wav"), gatetest.JSON(200, `{"choices":[{"index":0,"message":{"audio":{"data":"`+speech+`"}},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":4,"completion_tokens_details":{"audio_tokens":3}}}`), 9 + 3*100 + 10, "reported"},
		"speech with a report of none": {chat, sound("wav"), gatetest.JSON(200, `{"choices":[{"index":0,"message":{"audio":{"data":"`+speech+`"}},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":0}}`), 9 + 20*100, "estimated"},
		"images":                       {chat, `,"modalities":["text","image"]`, speechAnswer(drawn), input + 10_000*200, "estimated"},
		"images in a stream":           {chat, streamed + `,"modalities":["text","image"]`, gatetest.Stream(chatChunk(drawn), chatChunks[2], doneChunk), input + 10_000*200, "estimated"},
	})
	g.Verify(t)
}
