package e2e

import (
	"cmp"
	"fmt"
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

	*surface // nil: the answer is a stream of text
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

	images, partialImages int64
	seconds               int64 // of the recording, as reported
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
	case complete || k.endsWhole():
		ended = "complete"
	default:
		ended = "upstream_error"
	}
	if !began && !complete && ended != "client_gone" {
		return tokens{}, tokens{}, ended, "none"
	}

	usage = "reported"
	if k.byUnits() {
		if _, guessed := k.counted(); guessed {
			usage = "estimated"
		}
		return tokens{}, tokens{}, ended, usage
	}
	if input == nil {
		input, usage = &tokens{}, "estimated"
	}
	claimed = *input
	textBytes, prompts := int64(len(k.prompt)), int64(1)
	if k.surface != nil {
		textBytes, prompts = k.textBytes, k.prompts
	}
	if asked := third(textBytes); (!complete || usage == "estimated") && asked > input.all() {
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
	t.Input = min(t.Input, contextTokens*prompts)     // calls that report more have no other kind of input
	t.Output = min(t.Output, k.maxTokens-t.Reasoning) // and no other kind of output
	return t, claimed, ended, usage
}

// uncollected returns the price of reported usage beyond the limits of the call.
func (k *scriptedCall) uncollected(p price) nano {
	t, claimed, _, usage := k.bill()
	if usage == "none" || k.byUnits() {
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
	switch {
	case usage == "none":
		return 0
	case k.byUnits():
		n, _ := k.counted()
		return nano(n) * k.unit
	}
	return p.of(t)
}

// third returns the estimated tokens of n bytes of text.
func third(n int64) int64 { return (n + 2) / 3 }

// request returns the request body.
func (k *scriptedCall) request() string { return k.requestOf(cmp.Or(k.asked, k.model)) }

// requestOf returns the request body with this model.
func (k *scriptedCall) requestOf(model string) string {
	if k.surface != nil {
		return strings.Replace(k.body, "MODEL", model, 1)
	}
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
