// Package modelcall reads the body of a model call. It reads the models that the body names,
// and the members that decide the route, the price or the access to stored objects.
//
// A [Schema] declares the body of a route. [Request.Parse] checks a body against it in one
// pass, and [Request.Spec] returns the values from which internal/catalog calculates the
// highest cost. [Request.RefuseUnpriced] refuses members whose effect on the price is
// unknown. The package does not store the body: the caller passes it to each method, and the
// gateway sends it to the backend unchanged. It does not use HTTP or prices. The models that
// the operator sells, and their prices, are in internal/catalog.
package modelcall

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// Request has the parsed members of the body of a model call. Its methods take the body that
// was parsed.
type Request struct {
	Model  string
	Stream bool
	Named  []catalog.NamedModel // the other models that the body names, without prices

	// OwnsState lets the body name objects that the vendor stores, in the places that References then
	// lists. The caller of Parse sets it, and checks who owns them.
	OwnsState  bool
	References []Reference
	Background bool // the backend answers at once and works on

	schema  *Schema
	values  [slots]strictjson.Value
	files   []file             // of a form
	notes   []strictjson.Note  // of members without a slot; empty for most bodies
	namedAt []strictjson.Value // where the names in Named are
}

// Parse checks a body against the schema of its route. Members that name objects stored in
// the account of the operator are refused unless sharedState is set.
func (q *Request) Parse(s *Schema, body []byte, sharedState bool) *fault.Fault {
	q.schema = s
	if f := s.members.ScanNotes(body, q.values[:], &q.notes); f != nil {
		return f
	}
	q.Model = q.values[slotModel].Text(body)
	q.Stream = q.values[slotStream].Bool(body)
	if !s.noModel && (s.defaultModel == "" || q.values[slotModel].Kind == text) {
		if f := catalog.CheckName("model", q.Model); f != nil {
			return f
		}
	}
	if elements := q.values[slotPromptElements].Kind; elements&(elements-1) != 0 {
		return fault.At(fault.InvalidParameter, s.prompt, "`%s` must be a string, or an array that only has strings, only tokens, or only arrays of tokens", s.prompt)
	}
	if len(q.notes) == 0 {
		return nil
	}
	if f := q.refuseState(body, sharedState); f != nil {
		return f
	}
	if q.Background && isFalse(body, q.values[slotStore]) {
		return fault.At(fault.InvalidParameter, "store", "`store` must not be false with `background`: the vendor would forget what the answer has cost")
	}
	q.findNamed(body)
	return nil
}

// PromptTokens returns the number of tokens in the prompt, if it consists of tokens, and
// their size in bytes. Both are zero for a prompt that is text.
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

// CheckPrompts refuses a prompt of more than limit tokens. It reads all prompts. The call is
// unnecessary if PromptTokens, the sum over all prompts, is at most limit.
func (q *Request) CheckPrompts(body []byte, limit int64) *fault.Fault {
	prompt := q.values[slotPrompt]
	if q.values[slotPromptElements].Kind == strictjson.Integer {
		return tooLong(q.schema.prompt, int64(prompt.Len), limit)
	}
	index := 0
	for text := range bytes.SplitSeq(prompt.Raw(body), []byte{']'}) {
		one := text[bytes.LastIndexByte(text, '[')+1:]
		if tokens := int64(bytes.Count(one, []byte{','})) + 1; tokens > limit {
			return tooLong(fmt.Sprintf("%s[%d]", q.schema.prompt, index), tokens, limit)
		}
		index++
	}
	return nil
}

func tooLong(param string, tokens, limit int64) *fault.Fault {
	return fault.At(fault.InvalidParameter, param, "`%s`: %d tokens are more than this model reads; allowed: %d", param, tokens, limit)
}

// prompts returns the number of prompts. An array of tokens is one prompt. Each document of a
// rerank request is one, because vendors read it together with the query.
func (q *Request) prompts() int64 {
	if documents := q.values[slotDocuments]; documents.Kind == strictjson.Array {
		return int64(max(documents.Len, 1))
	}
	prompt := q.values[slotPrompt]
	if prompt.Kind != strictjson.Array || q.values[slotPromptElements].Kind == strictjson.Integer {
		return 1
	}
	return int64(max(prompt.Len, 1))
}

// promptParam returns the member that has the prompts, or "".
func (q *Request) promptParam() string {
	if q.values[slotDocuments].Kind == strictjson.Array {
		return "documents"
	}
	return q.schema.prompt
}

// RepeatedBytes returns the number of bytes that a vendor reads in addition to those of the body. A
// vendor reads the query of a rerank request once for each document.
func (q *Request) RepeatedBytes() int64 {
	query := q.values[slotQuery]
	return int64(query.End-query.Start) * (q.prompts() - 1)
}

// A search unit is a query with up to 100 documents (Cohere's pricing). A long document counts as several,
// of 500 tokens each with the query. At least half of these tokens are not of the query.
const (
	documentsPerSearch = 100
	tokensPerDocument  = 250
)

// searchUnits returns the search units of a rerank call. bytes is the size of its text, with the query once
// for each document. Count assumes that the text is in long documents, because only the vendor knows.
func (q *Request) searchUnits(bytes int64) catalog.Units {
	documents := q.prompts()
	return catalog.Units{
		Unit: catalog.SearchUnit, Estimate: ceil(documents, documentsPerSearch),
		Count: ceil(documents+usage.Estimate(bytes)/tokensPerDocument, documentsPerSearch),
	}
}

// MaxTokensParam returns the member by which the caller bounds the output.
func (q *Request) MaxTokensParam() string {
	if q.values[slotMaxCompletionTokens].Kind != 0 {
		return "max_completion_tokens"
	}
	return cmp.Or(q.schema.maxTokens, "max_tokens")
}

// CacheKey returns the text of `prompt_cache_key`, or "". The body must be the one that was parsed.
func (q *Request) CacheKey(body []byte) string { return q.values[slotCacheKey].Text(body) }

// enablesReasoning reports whether the body enables reasoning by `thinking` or
// `reasoning_effort`. The other members that do are among the notes.
func (q *Request) enablesReasoning(body []byte) bool {
	thinking := q.values[slotThinking]
	if thinking.Kind == strictjson.Object && q.values[slotThinkingType].Kind != 0 {
		thinking = q.values[slotThinkingType]
	}
	return !isOff(body, thinking) || !isOff(body, q.values[slotReasoningEffort])
}

// Edit replaces the bytes of a body from From to To.
type Edit struct {
	From, To int
	Text     string
}

// AskForUsage returns the edit that makes a stream report its usage. It returns false if the
// body needs no edit: it already requests the usage, or the call has no price and the body
// declines it. Without a report the call would be charged by an estimate of the visible text,
// which leaves out reasoning and most of the input.
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

// passMember is the directive of the Caddyfile for members that [Request.RefuseUnpriced]
// accepts.
const passMember = "pass_member"

const memberCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// PassMembers returns the set of members that a call with a price may have although their
// effect on the price is unknown. It returns an error for a text that is not the name of a
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
			return nil, fmt.Errorf("%s: %s is given twice", passMember, given)
		}
		passes[given] = true
	}
	return passes, nil
}
