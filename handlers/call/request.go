package call

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// request is what a model call asks for, as far as the gate must know it. It is
// read once; what was checked here is what is priced and sent on.
type request struct {
	model  string
	stream bool

	// trimsUsage is set when the chunk that reports usage was asked for by the
	// gate, not by the caller, and must be taken out of the stream again.
	trimsUsage bool

	fields [slots]strictjson.Value
	notes  []strictjson.Note // what the body says beside them; empty for most
	named  []catalog.NamedModel
}

// parse checks a body against the fields of its route. Members that name what the
// vendor's account keeps are refused unless shared is set.
func (q *request) parse(rt *route, json []byte, shared bool) *fault.Fault {
	if f := rt.fields.ScanNotes(json, q.fields[:], &q.notes); f != nil {
		return f
	}
	q.model = q.fields[slotModel].Text(json)
	q.stream = q.fields[slotStream].Bool(json)
	if f := catalog.CheckName("model", q.model); f != nil {
		return f
	}
	if elements := q.fields[slotPromptElements].Kind; elements&(elements-1) != 0 {
		return fault.At(fault.InvalidParameter, "prompt", "`prompt` must be a string, or an array of strings, of tokens, or of arrays of tokens alone")
	}
	if len(q.notes) == 0 {
		return nil
	}
	if f := q.refuseState(json, shared); f != nil {
		return f
	}
	q.named = q.namedModels(json)
	return nil
}

// promptTokens is the number of tokens that a prompt is given by, and how many
// bytes they take; both are zero where it is given as text.
func (q *request) promptTokens() (tokens, bytes int64) {
	prompt, elements := q.fields[slotPrompt], q.fields[slotPromptElements]
	switch elements.Kind {
	case strictjson.Integer:
		return int64(prompt.Len), int64(prompt.End - prompt.Start)
	case strictjson.Array:
		return int64(elements.Len), int64(prompt.End - prompt.Start)
	}
	return 0, 0
}

// checkPrompts refuses a prompt that is given as more tokens than most. It reads the
// prompts: it is called only if they are more than that together.
func (q *request) checkPrompts(json []byte, most int64) *fault.Fault {
	prompt := q.fields[slotPrompt]
	if q.fields[slotPromptElements].Kind == strictjson.Integer {
		return tooLong("prompt", int64(prompt.Len), most)
	}
	index := 0
	for text := range bytes.SplitSeq(prompt.Raw(json), []byte{']'}) {
		one := text[bytes.LastIndexByte(text, '[')+1:]
		if tokens := int64(bytes.Count(one, []byte{','})) + 1; tokens > most {
			return tooLong(fmt.Sprintf("prompt[%d]", index), tokens, most)
		}
		index++
	}
	return nil
}

func tooLong(param string, tokens, most int64) *fault.Fault {
	return fault.At(fault.InvalidParameter, param, "`%s`: %d tokens are more than this model reads; allowed: %d", param, tokens, most)
}

// prompts is the number of prompts: an array of tokens is one.
func (q *request) prompts() int64 {
	prompt := q.fields[slotPrompt]
	if prompt.Kind != strictjson.Array || q.fields[slotPromptElements].Kind == strictjson.Integer {
		return 1
	}
	return int64(max(prompt.Len, 1))
}

// thinks reports whether the body asks the model to reason, by `thinking`
// or `reasoning_effort`. The object `reasoning` is among the notes.
func (q *request) thinks(json []byte) bool {
	says := func(slot int, off string) bool {
		v := q.fields[slot]
		return v.Kind == strictjson.String && string(v.Raw(json)) != off
	}
	return says(slotThinkingType, `"disabled"`) || says(slotReasoningEffort, `"none"`)
}

const (
	askWhole  = `"stream_options":{"include_usage":true},`
	askInside = `"include_usage":true`
)

// askForUsage has a completions stream report its usage where the caller has not
// said whether it should, and where the caller has said no to what has a price: it would
// be billed by an estimate of what can be seen of it, which leaves out what the
// model thinks and what it was shown. Everything else of the body stays byte for byte.
func (q *request) askForUsage(b *body, priced bool) {
	options := q.fields[slotStreamOptions]
	switch {
	case options.Kind == strictjson.Object && q.fields[slotIncludeUsage].Kind == 0:
		inside := askInside
		if options.Len > 0 {
			inside += ","
		}
		b.splice(options.Start+1, options.Start+1, inside)
	case options.Kind == strictjson.Object &&
		(q.fields[slotIncludeUsage].Kind == strictjson.Null || priced && !q.fields[slotIncludeUsage].Bool(b.bytes())):
		asked := q.fields[slotIncludeUsage]
		b.splice(asked.Start, asked.End, "true")
	case options.Kind == strictjson.Null:
		b.splice(options.Start, options.End, "{"+askInside+"}")
	case options.Kind == 0:
		b.insert(q.fields[0].Start+1, askWhole)
	default:
		return
	}
	q.trimsUsage = true
}

// insert puts text into the JSON at the offset at. What stands before is moved
// into the headroom, which is next to nothing when that is the opening brace.
func (b *body) insert(at int, text string) {
	if b.start < len(text) || at > headroom {
		b.splice(at, at, text)
		return
	}
	copy(b.buffer[b.start-len(text):], b.buffer[b.start:b.start+at])
	b.start -= len(text)
	copy(b.buffer[b.start+at:], text)
}

// splice replaces the JSON between two offsets.
func (b *body) splice(from, to int, text string) {
	json := b.bytes()
	buffer := getBuffer(len(json) + len(text))[:0]
	buffer = append(append(append(buffer, json[:from]...), text...), json[to:]...)
	putBuffer(b.buffer)
	b.buffer, b.start = buffer, 0
	b.memory.Hold(int64(cap(buffer)))
}

// checkVersion demands the header that names the version of the messages
// dialect, in the form of a date.
func checkVersion(values []string, name string) *fault.Fault {
	if len(values) == 0 || values[0] == "" {
		return fault.At(fault.MissingParameter, name, "the header %s is required, with a date such as 2023-06-01", name)
	}
	for _, value := range values {
		if _, err := time.Parse(time.DateOnly, value); err != nil || value != values[0] {
			return fault.At(fault.InvalidParameter, name, "the header %s must be one date such as 2023-06-01", name)
		}
	}
	return nil
}

// checkEncoding refuses encoded bodies: what is checked here must be what the
// backend reads.
func checkEncoding(header http.Header) *fault.Fault {
	if coding := reply.Encoding(header); coding != "" {
		return fault.New(fault.UnsupportedMediaType, "Content-Encoding %q: send the body without an encoding", coding)
	}
	return nil
}

// send gives the checked body to r in place of the one that was read.
func (b *body) send(r *http.Request) {
	length := len(b.bytes())
	r.Body = b
	r.ContentLength = int64(length)
	r.TransferEncoding = nil
	r.Header["Content-Length"] = []string{strconv.Itoa(length)}
}
