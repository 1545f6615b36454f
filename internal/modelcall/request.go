// Package modelcall reads the body of a model call: which members decide something, which
// models it names, and what it asks for.
//
// A [Schema] declares the body of a route. [Request.Parse] checks a body against it in one
// pass, and [Request.Ask] returns what decides the greatest price. The body itself stays
// with the caller, because it goes to the backend byte for byte. The package does not use
// HTTP or prices: which models the operator sells, at which price, is in internal/catalog. It refuses
// members whose effect on the price is unknown ([Request.RefuseUnpriced]).
package modelcall

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// Request is what the body of a model call asks for. Its methods take the body that was
// parsed.
type Request struct {
	Model  string
	Stream bool
	Named  []catalog.NamedModel // the other models that the body names; without prices

	values [slots]strictjson.Value
	notes  []strictjson.Note // of members without a slot; empty for most bodies
}

// Parse checks a body against the schema of its route. Members that name objects stored in
// the account of the operator are refused unless sharedState is set.
func (q *Request) Parse(s *Schema, body []byte, sharedState bool) *fault.Fault {
	if f := s.members.ScanNotes(body, q.values[:], &q.notes); f != nil {
		return f
	}
	q.Model = q.values[slotModel].Text(body)
	q.Stream = q.values[slotStream].Bool(body)
	if f := catalog.CheckName("model", q.Model); f != nil {
		return f
	}
	if elements := q.values[slotPromptElements].Kind; elements&(elements-1) != 0 {
		return fault.At(fault.InvalidParameter, "prompt", "`prompt` must be a string, or an array of strings, of tokens, or of arrays of tokens alone")
	}
	if len(q.notes) == 0 {
		return nil
	}
	if f := q.refuseState(body, sharedState); f != nil {
		return f
	}
	q.Named = q.namedModels(body)
	return nil
}

// PromptTokens returns the number of tokens in the prompt, if it is given as tokens, and
// the bytes that they take. Both are zero for a prompt that is text.
func (q *Request) PromptTokens() (tokens, bytes int64) {
	prompt, elements := q.values[slotPrompt], q.values[slotPromptElements]
	switch elements.Kind {
	case strictjson.Integer:
		return int64(prompt.Len), int64(prompt.End - prompt.Start)
	case strictjson.Array:
		return int64(elements.Len), int64(prompt.End - prompt.Start)
	}
	return 0, 0
}

// CheckPrompts refuses a prompt of more than most tokens. It reads the prompts, and is only
// worth calling if PromptTokens returns more than that for all of them.
func (q *Request) CheckPrompts(body []byte, most int64) *fault.Fault {
	prompt := q.values[slotPrompt]
	if q.values[slotPromptElements].Kind == strictjson.Integer {
		return tooLong("prompt", int64(prompt.Len), most)
	}
	index := 0
	for text := range bytes.SplitSeq(prompt.Raw(body), []byte{']'}) {
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

// prompts returns the number of prompts. An array of tokens is one prompt.
func (q *Request) prompts() int64 {
	prompt := q.values[slotPrompt]
	if prompt.Kind != strictjson.Array || q.values[slotPromptElements].Kind == strictjson.Integer {
		return 1
	}
	return int64(max(prompt.Len, 1))
}

// thinks reports whether the body asks the model to reason, by `thinking` or
// `reasoning_effort`. The object `reasoning` is among the notes.
func (q *Request) thinks(body []byte) bool {
	asks := func(slot int, off string) bool {
		v := q.values[slot]
		return v.Kind == strictjson.String && string(v.Raw(body)) != off
	}
	return asks(slotThinkingType, `"disabled"`) || asks(slotReasoningEffort, `"none"`)
}

// Edit replaces the bytes of a body from From to To.
type Edit struct {
	From, To int
	Text     string
}

// AskForUsage returns the edit that makes a stream report its usage, if the body leaves
// that open or, in a call with a price, declines it. Without a report the call would be
// charged by an estimate of the visible text, which leaves out reasoning and most of the
// input. It returns false if the body needs no edit.
func (q *Request) AskForUsage(body []byte, priced bool) (Edit, bool) {
	const include = `"include_usage":true`
	options, asked := q.values[slotStreamOptions], q.values[slotIncludeUsage]
	switch {
	case options.Kind == 0:
		at := q.values[0].Start + 1
		return Edit{at, at, `"stream_options":{` + include + `},`}, true
	case options.Kind == strictjson.Null:
		return Edit{options.Start, options.End, `{` + include + `}`}, true
	case asked.Kind == 0 && options.Len > 0:
		return Edit{options.Start + 1, options.Start + 1, include + `,`}, true
	case asked.Kind == 0:
		return Edit{options.Start + 1, options.Start + 1, include}, true
	case asked.Kind == strictjson.Null || priced && !asked.Bool(body):
		return Edit{asked.Start, asked.End, "true"}, true
	}
	return Edit{}, false
}

// passMember is the word of the Caddyfile for members that [Request.RefuseUnpriced] lets
// pass.
const passMember = "pass_member"

const memberCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// PassMembers returns the set of members that a call with a price may have although the
// gateway does not know them. It returns an error for a text that is not the name of a
// member.
func PassMembers(names []string) (map[string]bool, error) {
	passes := make(map[string]bool, len(names))
	for _, given := range names {
		where, name, found := strings.Cut(given, "[].")
		if !found {
			where, name = "", given
		}
		if !slices.Contains([]string{"", "tools", "fallbacks", "functions"}, where) || name == "" || strings.Trim(name, memberCharacters) != "" {
			return nil, fmt.Errorf("%s: %q is not the name of a member; allowed: letters, digits, _ and -, after tools[]., fallbacks[]. or functions[]. of a member of these",
				passMember, given)
		}
		if passes[given] {
			return nil, fmt.Errorf("%s: %s is there twice", passMember, given)
		}
		passes[given] = true
	}
	return passes, nil
}
