package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A talk is one call as both its sides conduct it: what the client asks, what
// the backend says, and where one of them breaks off. The client reads exactly
// what the backend has sent before anything is broken off, so that what was
// delivered is known to the byte, and so is what it costs.
type talk struct {
	number int
	path   string
	model  string
	asks   string // the text of the request
	most   int64  // max_tokens
	said   []utterance
	stop   int // how many utterances pass; below zero: not even the head
	end    ending
	status int // of the backend's head

	heard chan struct{} // closed by the client when it has read what passes
	gone  chan struct{} // closed by the backend when it has heard that the client has left

	// Where they are set, the backend waits in the middle.
	waits   chan struct{} // closed by it when it does
	release chan struct{}

	id    string    // of the request, as the client was told
	ended time.Time // when the client had all of it, or had left
	span  span      // of the prices at which it may have begun
}

// ending is how a talk ends.
type ending string

const (
	whole  ending = "whole"
	left   ending = "left by the client"
	deaf   ending = "left by the client, while the backend speaks on"
	torn   ending = "torn by the backend" // its connection breaks
	split  ending = "torn inside an event"
	hushed ending = "hushed" // the backend ends cleanly, but too early
	failed ending = "failed" // by an error event
	denied ending = "denied" // by a status
)

// utterance is one event of the backend.
type utterance struct {
	wire    string
	text    string // delivered by it
	content bool   // with it the answer has begun
	opening int64  // output that a message_start names
	input   *tokens
	output  *tokens
	last    bool // with it the answer is complete
	hidden  bool // the client did not ask for it, and does not get it
}

// charge is the billing rule: which tokens count, how the call has ended, and what
// the tokens rest on.
func (k *talk) charge() (t tokens, ended, usage string) {
	t, _, ended, usage = k.bill()
	return t, ended, usage
}

// bill is charge, and the tokens that the backend claims.
func (k *talk) bill() (t, claimed tokens, ended, usage string) {
	switch {
	case k.end == denied && k.status < 500:
		return tokens{}, tokens{}, "refused", "none"
	case k.end == denied || k.stop < 0:
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
	had := slices.ContainsFunc(k.said[:k.stop], func(u utterance) bool { return u.last })
	switch {
	case k.end == left && !had:
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
	if asked := third(int64(len(k.asks))); (!complete || usage == "estimated") && asked > input.all() {
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
	t.Input = min(t.Input, contextTokens)        // no call here that claims more has other input,
	t.Output = min(t.Output, k.most-t.Reasoning) // and none that claims more has other output
	return t, claimed, ended, usage
}

// lost is the cost of what the backend claims beyond the bounds of the call.
func (k *talk) lost(p price) nano {
	t, claimed, _, usage := k.bill()
	if usage == "none" {
		return 0
	}
	return max(p.of(claimed)-p.of(t), 0)
}

// counts is what of the backend's utterances counts: all of them where the call
// runs on without its client, and where it is complete but for its report.
func (k *talk) counts() []utterance {
	if k.runsOn() || k.end == deaf {
		return k.said
	}
	return k.said[:k.stop]
}

// mayHaveEnded tells whether a call that was charged for this end may be recorded
// with that one: the backend may have said the rest before the gateway noticed
// that the client had left.
func (k *talk) mayHaveEnded(charged, recorded string) bool {
	return charged == recorded || k.runsOn() && charged == "client_gone" && recorded == "complete"
}

// runsOn tells whether the call runs on to its end without its client.
func (k *talk) runsOn() bool { return k.outlived() && onDisconnect[k.model] == "" }

// cost is what the talk costs at a price.
func (k *talk) cost(p price) nano {
	t, _, usage := k.charge()
	if usage == "none" {
		return 0
	}
	return p.of(t)
}

// third is what bytes of text are estimated at.
func third(n int64) int64 { return (n + 2) / 3 }

// request is the body.
func (k *talk) request() string {
	switch k.path {
	case "/v1/messages":
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"messages":[{"role":"user","content":%s}]}`, k.model, k.most, quoted(k.asks))
	case "/v1/chat/completions":
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"messages":[{"role":"user","content":%s}]%s}`, k.model, k.most, quoted(k.asks), k.asking())
	}
	return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":true,"prompt":%s%s}`, k.model, k.most, quoted(k.asks), k.asking())
}

// asking is how the client of a completion asks for its usage, where it does.
func (k *talk) asking() string {
	for _, u := range k.said {
		if u.hidden {
			return ""
		}
	}
	return `,"stream_options":{"include_usage":true}`
}

// passes is what the client gets before anything is broken off.
func (k *talk) passes() string {
	return wireOf(slices.DeleteFunc(slices.Clone(k.said[:max(k.stop, 0)]), func(u utterance) bool { return u.hidden }))
}

func wireOf(said []utterance) string {
	var text strings.Builder
	for _, u := range said {
		text.WriteString(u.wire)
	}
	return text.String()
}

// outlived tells whether the call ends after its client has left.
func (k *talk) outlived() bool { return k.end == left && k.stop < len(k.said) }

// over tells when the call had ended, if it has.
func (k *talk) over() (at time.Time, ended bool) {
	if k.outlived() {
		select {
		case <-k.gone:
		default:
			return time.Time{}, false
		}
	}
	return k.ended, !k.ended.IsZero()
}

// failure is the error event of the dialect.
func (k *talk) failure() string {
	if k.path == "/v1/messages" {
		return event("error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
	}
	return event("", `{"error":{"message":"Overloaded","type":"server_error","code":null,"param":null}}`)
}

func quoted(text string) string { return string(must(json.Marshal(text))) }

// imagination makes talks up.
type imagination struct{ *rand.Rand }

// syllables are short and long in bytes, and some are escaped in JSON.
var syllables = []string{"a", "tide ", "é", "海", "🌊", "\n", `"`, `\`, "<&>", "\t", "mast "}

func (i imagination) text(most int) string {
	var text strings.Builder
	for range 1 + i.IntN(most) {
		text.WriteString(syllables[i.IntN(len(syllables))])
	}
	return text.String()
}

// talk makes up a talk that ends in one of three ways, each as likely.
func (i imagination) talk(number int) *talk {
	k := &talk{
		number: number, status: 200, most: 2048, asks: i.text(200), heard: make(chan struct{}), gone: make(chan struct{}),
		path:  []string{"/v1/messages", "/v1/chat/completions", "/v1/completions"}[[]int{0, 0, 1, 2}[i.IntN(4)]],
		model: []string{"m-1", "m-2"}[i.IntN(2)],
	}
	if k.path == "/v1/messages" {
		k.said = i.message()
	} else {
		k.said = i.completion(k.path)
	}
	last := 0 // the utterance that makes it complete
	for !k.said[last].last {
		last++
	}
	switch number % 3 {
	case 0:
		k.end, k.stop = whole, len(k.said)
	case 1:
		k.end, k.stop = left, i.IntN(len(k.said)+1)
		if k.stop > 0 && k.said[k.stop-1].hidden {
			k.stop++ // the client leaves after something it has read
		}
		if k.path != "/v1/messages" && i.IntN(8) == 0 {
			k.end, k.stop = deaf, last+1
		}
	default:
		k.end = []ending{torn, split, hushed, failed}[i.IntN(4)]
		k.stop = i.IntN(last + 1)
		switch {
		case k.end == split:
			k.stop = i.IntN(last)
		case k.end == torn && i.IntN(8) == 0:
			k.stop = -1
		case i.IntN(12) == 0:
			k.end, k.stop, k.status = denied, -1, []int{400, 429, 500, 529}[i.IntN(4)]
		}
	}
	return k
}

// input makes up what a backend reports of its input. Now and then it claims
// more than the model can read.
func (i imagination) input() tokens {
	switch i.IntN(20) {
	case 0:
		return tokens{Input: contextTokens + i.Int64N(100_000)}
	case 1, 2, 3, 4, 5, 6:
		return tokens{Input: i.Int64N(50), CacheRead: i.Int64N(4000), CacheWrite5m: i.Int64N(300), CacheWrite1h: i.Int64N(200)}
	}
	return tokens{Input: 1 + i.Int64N(3000)}
}

// message makes up an answer of the messages dialect. What it reports: all of
// its usage, only that at its start, or nothing.
func (i imagination) message() (said []utterance) {
	reports := []int{2, 2, 2, 1, 0}[i.IntN(5)]
	in := i.input()
	start := utterance{}
	usage := ""
	if reports > 0 {
		start.input, start.opening = &in, 1
		usage = fmt.Sprintf(`,"usage":{"input_tokens":%d,"cache_read_input_tokens":%d,"cache_creation_input_tokens":%d,`+
			`"cache_creation":{"ephemeral_5m_input_tokens":%d,"ephemeral_1h_input_tokens":%d},"output_tokens":1,"service_tier":"standard"}`,
			in.Input, in.CacheRead, in.CacheWrite5m+in.CacheWrite1h, in.CacheWrite5m, in.CacheWrite1h)
	}
	start.wire = event("message_start", `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[]`+
		`,"stop_reason":null,"stop_sequence":null`+usage+`}}`)
	said = append(said, start)

	index := 0
	for _, b := range []struct {
		likely             int // of 4
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
		said = append(said, utterance{content: b.tool != "", text: b.tool, wire: event("content_block_start",
			fmt.Sprintf(`{"type":"content_block_start","index":%d,"content_block":%s}`, index, b.block))})
		if i.IntN(4) == 0 {
			said = append(said, utterance{wire: event("ping", `{"type": "ping"}`)})
		}
		for range 1 + i.IntN(6) {
			text := i.text(12)
			said = append(said, utterance{content: true, text: text, wire: event("content_block_delta",
				fmt.Sprintf(`{"type":"content_block_delta","index":%d,"delta":{"type":%q,%q:%s}}`, index, b.delta, b.name, quoted(text)))})
		}
		said = append(said, utterance{wire: event("content_block_stop", fmt.Sprintf(`{"type":"content_block_stop","index":%d}`, index))})
		index++
	}

	deltas := 1 + i.IntN(2) // what they report is cumulative
	var out int64
	for n := range deltas {
		delta, usage := utterance{}, ""
		if reports == 2 {
			out += 1 + i.Int64N(200)
			if n == deltas-1 && i.IntN(20) == 0 {
				out += 5000 // more than was asked for
			}
			delta.output = &tokens{Output: out}
			usage = fmt.Sprintf(`,"usage":{"output_tokens":%d}`, out)
		}
		delta.wire = event("message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null}`+usage+`}`)
		said = append(said, delta)
	}
	return append(said, utterance{last: true, wire: event("message_stop", `{"type":"message_stop"}`)})
}

// completion makes up an answer of the completions dialect. It reports its usage
// at the end, or nothing; the client has asked for the report, or the gateway
// does in its place.
func (i imagination) completion(path string) (said []utterance) {
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
		said = append(said, utterance{wire: chunk(choice(`"delta":{"role":"assistant","content":""}`, "null"), "")})
		thinks = i.IntN(4) == 0
	}
	if thinks {
		for range 1 + i.IntN(3) {
			text := i.text(12)
			said = append(said, utterance{content: true, text: text, wire: chunk(choice(say("reasoning_content", text), "null"), "")})
		}
	}
	for range 1 + i.IntN(8) {
		text := i.text(12)
		said = append(said, utterance{content: true, text: text, wire: chunk(choice(say("content", text), "null"), "")})
	}
	said = append(said, utterance{last: true, wire: chunk(choice(silent, `"stop"`), "")})

	if i.IntN(4) > 0 {
		in, out := i.input(), tokens{Output: 1 + i.Int64N(300)}
		in = tokens{Input: in.Input, CacheRead: in.CacheRead} // the dialect knows no other kinds
		if thinks {
			out.Reasoning = i.Int64N(300)
		} else if i.IntN(20) == 0 {
			out.Output += 5000
		}
		said = append(said, utterance{input: &in, output: &out, hidden: i.IntN(2) == 0, wire: chunk("", fmt.Sprintf(
			`,"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},"completion_tokens_details":{"reasoning_tokens":%d}}`,
			in.Input+in.CacheRead, out.Output+out.Reasoning, in.Input+in.CacheRead+out.Output+out.Reasoning, in.CacheRead, out.Reasoning))})
	}
	return append(said, utterance{wire: event("", "[DONE]")})
}
