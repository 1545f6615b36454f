package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

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

// scriptedCall draws a call whose answer is a stream of text.
func (i callGenerator) scriptedCall(number int) *scriptedCall {
	k := i.newCall(number)
	k.path = []string{"/v1/messages", "/v1/chat/completions", "/v1/completions", "/v1/responses"}[[]int{0, 0, 1, 2, 3, 3}[i.IntN(6)]]
	switch k.path {
	case "/v1/messages":
		k.events = i.message()
	case "/v1/responses":
		k.events = i.response()
	default:
		k.events = i.completion(k.path)
	}
	i.ending(k)
	return k
}

// newCall draws what all calls have.
func (i callGenerator) newCall(number int) *scriptedCall {
	return &scriptedCall{
		number: number, status: 200, maxTokens: 2048, prompt: i.text(200), received: make(chan struct{}), gone: make(chan struct{}),
		model: []string{"m-1", "m-2"}[i.IntN(2)],
	}
}

// ending draws the ending of a call: one of three kinds, equally likely.
func (i callGenerator) ending(k *scriptedCall) {
	breaks := []ending{dropped, split, truncated, failed}
	switch {
	case k.surface == nil || k.mediaType == "":
	case k.opaque:
		breaks = breaks[:1]
	default: // JSON
		breaks = []ending{dropped, truncated}
	}
	last := 0 // the event that completes the answer
	for !k.events[last].last {
		last++
	}
	switch k.number % 3 {
	case 0:
		k.end, k.stop = whole, len(k.events)
	case 1:
		k.end, k.stop = clientGone, i.IntN(len(k.events)+1)
		if k.surface != nil && k.opaque {
			k.stop = min(k.stop, last) // the client cannot know that it has everything
		}
		if k.stop > 0 && k.events[k.stop-1].hidden {
			k.stop++ // the client disconnects after it has read something
		}
		if last < len(k.events)-1 && i.IntN(8) == 0 {
			k.end, k.stop = clientGoneUnnoticed, last+1
		}
	default:
		k.end = breaks[i.IntN(len(breaks))]
		k.stop = i.IntN(last + 1)
		switch {
		case k.end == split:
			k.stop = i.IntN(max(last, 1))
		case k.end == dropped && i.IntN(8) == 0:
			k.stop = -1
		case i.IntN(12) == 0:
			k.end, k.stop, k.status = rejected, -1, []int{400, 429, 500, 529}[i.IntN(4)]
		}
	}
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
