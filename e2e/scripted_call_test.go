package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// scriptedCall is one call with the behaviour of both sides: the request, the
// events of the backend, and the event at which one side stops. Until then, the
// client reads every sent byte, so the delivered bytes and their price are known.
type scriptedCall struct {
	number    int
	path      string
	model     string
	asked     string // the model in the request if it is not model, but falls back to it
	fails     int    // how the asked model fails: a status; 0: its backend breaks the connection
	prompt    string // text of the request
	maxTokens int64
	events    []scriptEvent
	stop      int // number of events that are delivered; negative: not even the header
	end       ending
	status    int // of the backend's answer

	received chan struct{} // closed by the client when it has read the delivered events
	gone     chan struct{} // closed by the backend when it has noticed that the client disconnected

	// If these are set, the backend waits after half of the events.
	waiting chan struct{} // closed by the backend when it waits
	release chan struct{}

	id    string    // request id in the answer
	ended time.Time // when the client had the whole answer, or disconnected
	span  span      // the prices that may apply
}

// ending is how a call ends.
type ending string

const (
	whole               ending = "whole"
	clientGone          ending = "client disconnected"
	clientGoneUnnoticed ending = "client disconnected, backend sent all"
	dropped             ending = "connection broken by the backend"
	split               ending = "connection broken inside an event"
	truncated           ending = "stream ended early" // normally, but without its last events
	failed              ending = "error event"
	rejected            ending = "error status"
)

// scriptEvent is one event of the backend.
type scriptEvent struct {
	wire    string
	text    string // its content
	content bool   // the answer has begun
	opening int64  // output tokens in message_start
	input   *tokens
	output  *tokens
	last    bool // the answer is complete
	hidden  bool // the client did not request it and does not get it
}

// charge is the billing rule. It returns the tokens that count, the end of the
// call, and the source of the tokens.
func (k *scriptedCall) charge() (t tokens, ended, usage string) {
	t, _, ended, usage = k.bill()
	return t, ended, usage
}

// bill returns the result of charge, and the tokens that the backend reports.
func (k *scriptedCall) bill() (t, claimed tokens, ended, usage string) {
	switch {
	case k.end == rejected && k.status < 500:
		return tokens{}, tokens{}, "refused", "none"
	case k.end == rejected || k.stop < 0:
		return tokens{}, tokens{}, "upstream_error", "none"
	}
	var began, complete bool
	var text, opening int64
	var input, output *tokens
	for _, u := range k.counts() {
		began, complete = began || u.content, complete || u.last
		text += int64(len(u.text))
		opening = max(opening, u.opening)
		if u.input != nil {
			input = u.input
		}
		if u.output != nil {
			output = u.output
		}
	}
	had := slices.ContainsFunc(k.events[:k.stop], func(u scriptEvent) bool { return u.last })
	switch {
	case k.end == clientGone && !had:
		ended = "client_gone"
	case complete:
		ended = "complete"
	default:
		ended = "upstream_error"
	}
	if !began && !complete && ended != "client_gone" {
		return tokens{}, tokens{}, ended, "none"
	}

	usage = "reported"
	if input == nil {
		input, usage = &tokens{}, "estimated"
	}
	claimed = *input
	if asked := third(int64(len(k.prompt))); (!complete || usage == "estimated") && asked > input.all() {
		more := *input
		more.Input += asked - input.all()
		input, usage = &more, "estimated"
	}
	reported := output
	if output == nil {
		output, usage = &tokens{Output: opening}, "estimated"
	}
	claimed = claimed.plus(*output)
	if delivered := third(text); (!complete || reported == nil) && delivered > output.Output+output.Reasoning {
		output, usage = &tokens{Output: delivered - output.Reasoning, Reasoning: output.Reasoning}, "estimated"
	}
	t = input.plus(*output)
	t.Input = min(t.Input, contextTokens)             // calls that report more have no other kind of input
	t.Output = min(t.Output, k.maxTokens-t.Reasoning) // and no other kind of output
	return t, claimed, ended, usage
}

// uncollected returns the price of reported usage beyond the limits of the call.
func (k *scriptedCall) uncollected(p price) nano {
	t, claimed, _, usage := k.bill()
	if usage == "none" {
		return 0
	}
	return max(p.of(claimed)-p.of(t), 0)
}

// counts returns the events that count: all of them if the call continues
// without its client, or if only its usage report is missing.
func (k *scriptedCall) counts() []scriptEvent {
	if k.continues() || k.end == clientGoneUnnoticed {
		return k.events
	}
	return k.events[:k.stop]
}

// mayHaveEnded reports whether a call that was charged for one end may be recorded with
// another. The backend may have sent the rest before the gateway noticed that the client had
// disconnected.
func (k *scriptedCall) mayHaveEnded(charged, recorded string) bool {
	return charged == recorded || k.continues() && charged == "client_gone" && recorded == "complete"
}

// continues reports whether the call continues to its end without its client.
func (k *scriptedCall) continues() bool { return k.endsWithoutClient() && onDisconnect[k.model] == "" }

// cost returns the cost of the call at a price.
func (k *scriptedCall) cost(p price) nano {
	t, _, usage := k.charge()
	if usage == "none" {
		return 0
	}
	return p.of(t)
}

// third returns the estimated tokens of n bytes of text.
func third(n int64) int64 { return (n + 2) / 3 }

// request returns the request body.
func (k *scriptedCall) request() string { return k.requestOf(cmp.Or(k.asked, k.model)) }

// requestOf returns the request body with this model.
func (k *scriptedCall) requestOf(model string) string {
	switch k.path {
	case "/v1/messages":
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"messages":[{"role":"user","content":%s}]}`, model, k.maxTokens, quoted(k.prompt))
	case "/v1/chat/completions":
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"messages":[{"role":"user","content":%s}]%s}`, model, k.maxTokens, quoted(k.prompt), k.usageOption())
	}
	if k.path == "/v1/responses" {
		return fmt.Sprintf(`{"model":%q,"max_output_tokens":%d,"stream":true,"input":%s}`, model, k.maxTokens, quoted(k.prompt))
	}
	return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"prompt":%s%s}`, model, k.maxTokens, quoted(k.prompt), k.usageOption())
}

// usageOption returns the member with which the client of a completion requests
// its usage, if it does.
func (k *scriptedCall) usageOption() string {
	for _, u := range k.events {
		if u.hidden {
			return ""
		}
	}
	return `,"stream_options":{"include_usage":true}`
}

// passes returns the bytes that the client receives before one side stops.
func (k *scriptedCall) passes() string {
	return wireOf(slices.DeleteFunc(slices.Clone(k.events[:max(k.stop, 0)]), func(u scriptEvent) bool { return u.hidden }))
}

func wireOf(events []scriptEvent) string {
	var text strings.Builder
	for _, u := range events {
		text.WriteString(u.wire)
	}
	return text.String()
}

// endsWithoutClient reports whether the client disconnects before the end of the call.
func (k *scriptedCall) endsWithoutClient() bool { return k.end == clientGone && k.stop < len(k.events) }

// over returns when the call had ended, if it has.
func (k *scriptedCall) over() (at time.Time, ended bool) {
	if k.endsWithoutClient() {
		select {
		case <-k.gone:
		default:
			return time.Time{}, false
		}
	}
	return k.ended, !k.ended.IsZero()
}

// failure returns the error event of the dialect.
func (k *scriptedCall) failure() string {
	if k.path == "/v1/messages" {
		return event("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	}
	if k.path == "/v1/responses" {
		return event("error", `{"type":"error","code":null,"message":"Overloaded","param":null,"sequence_number":1}`)
	}
	return event("", `{"error":{"message":"Overloaded","type":"server_error","code":null,"param":null}}`)
}

func quoted(text string) string { return string(must(json.Marshal(text))) }

// callGenerator draws random calls.
type callGenerator struct{ *rand.Rand }

// syllables have one or several bytes, and some are escaped in JSON.
var syllables = []string{"a", "tide ", "é", "海", "🌊", "\n", `"`, `\`, "<&>", "\t", "mast "}

func (i callGenerator) text(most int) string {
	var text strings.Builder
	for range 1 + i.IntN(most) {
		text.WriteString(syllables[i.IntN(len(syllables))])
	}
	return text.String()
}

// scriptedCall draws a call with one of three kinds of ending, equally likely.
func (i callGenerator) scriptedCall(number int) *scriptedCall {
	k := &scriptedCall{
		number: number, status: 200, maxTokens: 2048, prompt: i.text(200), received: make(chan struct{}), gone: make(chan struct{}),
		path:  []string{"/v1/messages", "/v1/chat/completions", "/v1/completions", "/v1/responses"}[[]int{0, 0, 1, 2, 3, 3}[i.IntN(6)]],
		model: []string{"m-1", "m-2"}[i.IntN(2)],
	}
	switch k.path {
	case "/v1/messages":
		k.events = i.message()
	case "/v1/responses":
		k.events = i.response()
	default:
		k.events = i.completion(k.path)
	}
	last := 0 // the event that completes the answer
	for !k.events[last].last {
		last++
	}
	switch number % 3 {
	case 0:
		k.end, k.stop = whole, len(k.events)
	case 1:
		k.end, k.stop = clientGone, i.IntN(len(k.events)+1)
		if k.stop > 0 && k.events[k.stop-1].hidden {
			k.stop++ // the client disconnects after it has read something
		}
		if last < len(k.events)-1 && i.IntN(8) == 0 {
			k.end, k.stop = clientGoneUnnoticed, last+1
		}
	default:
		k.end = []ending{dropped, split, truncated, failed}[i.IntN(4)]
		k.stop = i.IntN(last + 1)
		switch {
		case k.end == split:
			k.stop = i.IntN(last)
		case k.end == dropped && i.IntN(8) == 0:
			k.stop = -1
		case i.IntN(12) == 0:
			k.end, k.stop, k.status = rejected, -1, []int{400, 429, 500, 529}[i.IntN(4)]
		}
	}
	return k
}

// behindAnother makes the call ask for a model that fails, so that the model of the call answers as
// its fallback. The prices of the two differ.
func (i callGenerator) behindAnother(k *scriptedCall) {
	k.asked, k.fails = "first-"+k.model, []int{429, 503, 529, 0}[i.IntN(4)]
}

// input draws the input usage that a backend reports. Sometimes it exceeds the
// context of the model.
func (i callGenerator) input() tokens {
	switch i.IntN(20) {
	case 0:
		return tokens{Input: contextTokens + i.Int64N(100_000)}
	case 1, 2, 3, 4, 5, 6:
		return tokens{Input: i.Int64N(50), CacheRead: i.Int64N(4000), CacheWrite5m: i.Int64N(300), CacheWrite1h: i.Int64N(200)}
	}
	return tokens{Input: 1 + i.Int64N(3000)}
}

// message draws an answer of the messages dialect. It reports all of its usage,
// only that at its start, or nothing.
func (i callGenerator) message() (events []scriptEvent) {
	reports := []int{2, 2, 2, 1, 0}[i.IntN(5)]
	in := i.input()
	start := scriptEvent{}
	usage := ""
	if reports > 0 {
		start.input, start.opening = &in, 1
		usage = fmt.Sprintf(`,"usage":{"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},"output_tokens":1,"service_tier":"standard"}`,
			in.Input, in.CacheRead, in.CacheWrite5m+in.CacheWrite1h, in.CacheWrite5m, in.CacheWrite1h)
	}
	start.wire = event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[]`+
		`,"stop_reason":null,"stop_sequence":null`+usage+`}}`)
	events = append(events, start)

	index := 0
	for _, b := range []struct {
		likely             int // out of 4
		block, delta, name string
		tool               string
	}{
		{1, `{"type":"thinking","thinking":"","signature":""}`, "thinking_delta", "thinking", ""},
		{4, `{"type":"text","text":""}`, "text_delta", "text", ""},
		{1, `{"type":"tool_use","id":"toolu_1","name":"weather","input":{}}`, "input_json_delta", "partial_json", "weather"},
	} {
		if i.IntN(4) >= b.likely {
			continue
		}
		events = append(events, scriptEvent{content: b.tool != "", text: b.tool, wire: event("content_block_start",
			fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, b.block))})
		if i.IntN(4) == 0 {
			events = append(events, scriptEvent{wire: event("ping", `{"type": "ping"}`)})
		}
		for range 1 + i.IntN(6) {
			text := i.text(12)
			events = append(events, scriptEvent{content: true, text: text, wire: event("content_block_delta",
				fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%s}}`, index, b.delta, b.name, quoted(text)))})
		}
		events = append(events, scriptEvent{wire: event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))})
		index++
	}

	deltas := 1 + i.IntN(2) // their reports are cumulative
	var out int64
	for n := range deltas {
		delta, usage := scriptEvent{}, ""
		if reports == 2 {
			out += 1 + i.Int64N(200)
			if n == deltas-1 && i.IntN(20) == 0 {
				out += 5000 // more than max_tokens
			}
			delta.output = &tokens{Output: out}
			usage = fmt.Sprintf(`,"usage":{"output_tokens":%d}`, out)
		}
		delta.wire = event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}`+usage+`}`)
		events = append(events, delta)
	}
	return append(events, scriptEvent{last: true, wire: event("message_stop", `{"type":"message_stop"}`)})
}

// response draws an answer of the responses dialect. Its last event repeats the text. It reports the
// usage, or nothing.
func (i callGenerator) response() (events []scriptEvent) {
	of := func(kind, members string) string { return event(kind, fmt.Sprintf(`{"type":%q,%s}`, kind, members)) }
	events = append(events,
		scriptEvent{wire: of("response.created", `"response":{"id":"resp_1","status":"in_progress","output":[],"usage":null,"error":null}`)},
		scriptEvent{wire: of("response.output_item.added", `"item":{"type":"message","id":"msg_1","content":[]}`)})
	thinks, all := i.IntN(4) == 0, ""
	if thinks {
		text := i.text(12)
		events = append(events, scriptEvent{content: true, text: text, wire: of("response.reasoning_summary_text.delta", `"delta":`+quoted(text))})
	}
	for range 1 + i.IntN(8) {
		text := i.text(12)
		all += text
		events = append(events, scriptEvent{content: true, text: text, wire: of("response.output_text.delta", `"delta":`+quoted(text))})
	}
	events = append(events, scriptEvent{wire: of("response.output_text.done", `"text":`+quoted(all))})
	end, usage := scriptEvent{last: true}, "null"
	if i.IntN(4) > 0 {
		in, out := i.input(), tokens{Output: 1 + i.Int64N(300)}
		in = tokens{Input: in.Input, CacheRead: in.CacheRead} // the dialect has no other kinds
		if thinks {
			out.Reasoning = i.Int64N(300)
		} else if i.IntN(20) == 0 {
			out.Output += 5000
		}
		end.input, end.output = &in, &out
		usage = usageOf(in, out, "input", "output")
	}
	kind := []string{"completed", "completed", "incomplete"}[i.IntN(3)]
	end.wire = of("response."+kind, fmt.Sprintf(`"response":{"id":"resp_1","status":%q,"error":null,"usage":%s,"output":[{"type":"message","content":[{"type":"output_text","text":%s}]}]}`,
		kind, usage, quoted(all)))
	return append(events, end)
}

// usageOf returns a usage report of the openai dialects, with their names of the two sides.
func usageOf(in, out tokens, input, output string) string {
	read, written := in.Input+in.CacheRead, out.Output+out.Reasoning
	return fmt.Sprintf(`{"%s_tokens":%d,"%s_tokens":%d,"total_tokens":%d,"%[1]s_tokens_details":{"cached_tokens":%[6]d},"%[3]s_tokens_details":{"reasoning_tokens":%[7]d}}`,
		input, read, output, written, read+written, in.CacheRead, out.Reasoning)
}

// completion draws an answer of the completions dialect. It reports its usage
// at the end, or nothing. The client has requested the report, or the gateway
// does so instead.
func (i callGenerator) completion(path string) (events []scriptEvent) {
	chunk := func(choices, more string) string {
		return event("", `{"id":"c-1","object":"chunk","created":1,"model":"m","choices":[`+choices+`]`+more+`}`)
	}
	choice := func(member, finish string) string {
		return `{"index":0,` + member + `,"logprobs":null,"finish_reason":` + finish + `}`
	}
	say := func(name, text string) string { return `"delta":{` + fmt.Sprintf("%q:%s", name, quoted(text)) + `}` }
	silent, thinks := `"delta":{}`, false
	if path == "/v1/completions" {
		say = func(_, text string) string { return `"text":` + quoted(text) }
		silent = `"text":""`
	} else {
		events = append(events, scriptEvent{wire: chunk(choice(`"delta":{"role":"assistant","content":""}`, "null"), "")})
		thinks = i.IntN(4) == 0
	}
	if thinks {
		for range 1 + i.IntN(3) {
			text := i.text(12)
			events = append(events, scriptEvent{content: true, text: text, wire: chunk(choice(say("reasoning_content", text), "null"), "")})
		}
	}
	for range 1 + i.IntN(8) {
		text := i.text(12)
		events = append(events, scriptEvent{content: true, text: text, wire: chunk(choice(say("content", text), "null"), "")})
	}
	events = append(events, scriptEvent{last: true, wire: chunk(choice(silent, `"stop"`), "")})

	if i.IntN(4) > 0 {
		in, out := i.input(), tokens{Output: 1 + i.Int64N(300)}
		in = tokens{Input: in.Input, CacheRead: in.CacheRead} // the dialect has no other kinds
		if thinks {
			out.Reasoning = i.Int64N(300)
		} else if i.IntN(20) == 0 {
			out.Output += 5000
		}
		events = append(events, scriptEvent{input: &in, output: &out, hidden: i.IntN(2) == 0, wire: chunk("", `,"usage":`+usageOf(in, out, "prompt", "completion"))})
	}
	return append(events, scriptEvent{wire: event("", "[DONE]")})
}
