package modelcall

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// objectNotes has the values of the notes of one tool or fallback.
type objectNotes struct {
	object, index int
	toolType      string
	inner         bool   // it is in a namespace
	execution     string // who runs a tool_search
	local         bool   // the environment is on the caller's side
	model         strictjson.Note
	uses, tokens  int64
}

// objects groups the notes of tools and fallbacks by object. Between the notes of a namespace
// are those of its tools.
func (q *Request) objects(body []byte) (list []objectNotes) {
	for _, n := range q.notes {
		switch n.Name {
		case noteToolType, noteInnerToolType, noteExecution, noteEnvironment, noteToolModel, noteFallbackModel, noteMaxUses, noteMaxTokens:
		default:
			continue
		}
		i := len(list) - 1
		for i >= 0 && list[i].object > n.Object {
			i--
		}
		if i < 0 || list[i].object != n.Object {
			list = append(list, objectNotes{object: n.Object, index: n.Index})
			i = len(list) - 1
		}
		o := &list[i]
		switch n.Name {
		case noteToolType, noteInnerToolType:
			o.toolType, o.inner = n.Text(body), n.Name == noteInnerToolType
		case noteExecution:
			o.execution = n.Text(body)
		case noteEnvironment:
			o.local = isLocal(body, n.Start)
		case noteMaxUses:
			o.uses, _ = n.Int(body)
		case noteMaxTokens:
			o.tokens, _ = n.Int(body)
		default:
			o.model = n
		}
	}
	return list
}

// The reservation for media in the body. docs/guide/pricing.md#what-a-call-reserves has these rules.
const (
	// imageTokens is the reservation for an image. It is more than any documented model
	// counts. The highest documented count is 48,169 (2,833 and 5,667 for each of 8 tiles).
	imageTokens = 50_000

	// audioBytesPerToken is the minimum number of characters of Base64 for a token of audio,
	// rounded down to a power of two. 6 kbit/s are 1,000 characters per second, and the
	// highest documented rate is 32 tokens per second.
	audioBytesPerToken = 16
)

// Spec returns the values of the body that decide the highest cost of the call. FullContext
// makes the call reserve the whole context of the model.
func (q *Request) Spec(body []byte, fullContext bool) catalog.CallSpec {
	tokens, bytes := q.PromptTokens()
	a := catalog.CallSpec{
		Model: q.Model, BodyBytes: int64(len(body)) - bytes, PromptTokens: tokens, Prompts: q.prompts(), PromptParam: q.promptParam(), Choices: 1, FullContext: fullContext,
	}
	a.BodyBytes += q.RepeatedBytes()
	if q.values[slotDocuments].Kind == strictjson.Array {
		a.Units = q.searchUnits(a.BodyBytes)
	}
	for _, slot := range []int{slotChoices, slotBestOf} {
		if n, ok := q.values[slot].Int(body); ok {
			a.Choices = max(a.Choices, n)
		}
	}
	// Some backends know only one of the two names, so the greater value is used. For some
	// 0 means no bound, so 0 is ignored.
	for _, slot := range []int{slotMaxCompletionTokens, slotMaxTokens} {
		if n, ok := q.values[slot].Int(body); ok && n > a.MaxTokens {
			a.MaxTokens, a.HasMaxTokens = n, true
		}
	}
	a.Thinking = q.enablesReasoning(body)
	if len(q.notes) > 0 {
		q.addNotes(body, &a)
	}
	q.addMedia(body, &a)
	return a
}

// addNotes adds the values of the notes of a body.
func (q *Request) addNotes(body []byte, a *catalog.CallSpec) {
	a.Models = q.Named
	for _, m := range q.Named {
		if !strings.HasPrefix(m.Param, "tools") && a.HasMaxTokens {
			a.MaxTokens = max(a.MaxTokens, m.MaxTokens) // a fallback may have its own bound
		}
	}
	for _, o := range q.objects(body) {
		name := toolName(o.toolType)
		a.FullContext = a.FullContext || o.model.Kind != 0 // the model is among Models and has its own price
		if name == "" || name == "advisor" && o.model.Kind != 0 || o.isClientTool(name) {
			continue
		}
		a.Tools = append(a.Tools, catalog.ServerTool{Param: q.toolParam(o, "type"), Name: name, MaxUses: o.uses})
	}
	var source mediaSource
	for _, n := range q.notes {
		switch n.Name {
		case noteSourceType, noteSourceMedia, noteSourceData, noteSourceURL:
			if n.Object != source.object {
				source.addTo(body, a)
				source = mediaSource{object: n.Object}
			}
			source.members[n.Name-noteSourceType] = n.Value
		case noteTier:
			a.Tiers = append(a.Tiers, catalog.Option{Param: "service_tier", Value: n.Text(body)})
		case noteSpeed:
			a.Tiers = append(a.Tiers, catalog.Option{Param: "speed", Value: n.Text(body)})
		case noteGeo:
			a.Geo = catalog.Option{Param: "inference_geo", Value: n.Text(body)}
		case noteContextEdit:
			if !strings.HasPrefix(n.Text(body), "clear_") {
				a.Compaction, a.FullContext = true, true
			}
		case noteOutputBound:
			a.FullOutput = true
			a.Thinking = a.Thinking || strings.Contains(n.Member(body), "thinking")
		case noteModalities:
			for _, raw := range elements(n.Raw(body)) {
				switch strings.ToLower(unquote(raw)) {
				case "text":
				case "audio":
					a.Audio, a.AudioParam = true, cmp.Or(a.AudioParam, "modalities")
				default:
					a.Image, a.ImageOut = true, true
				}
			}
		case noteAudioOutput:
			a.Audio, a.AudioParam = true, cmp.Or(a.AudioParam, "audio")
		case noteReasoning:
			a.Thinking = a.Thinking || asksForReasoning(body, n)
		case noteMaxToolCalls:
			calls, _ := n.Int(body)
			for i := range a.Tools {
				if tool := &a.Tools[i]; tool.MaxUses == 0 {
					tool.MaxUses = calls
				}
			}
		case noteItemID:
			a.FullContext = a.FullContext || !isWholeItem(body, n)
		case noteContainer:
			a.FullContext = true
		case noteSkills:
			a.FullContext = a.FullContext || !isEmpty(body, n.Value) && !isLocal(body, n.Object)
		case noteCompaction:
			a.Compaction, a.FullContext = true, true
		case noteState, noteAgent:
			own := q.OwnsState && n.Name == noteAgent // background, which adds no input
			a.FullContext = a.FullContext || !own && !isEmpty(body, n.Value)
		case noteDocuments:
			a.FullContext = a.FullContext || !inlineDocuments(n.Raw(body))
		case noteOpaque:
			if n.Kind&(strictjson.Array|strictjson.Object) != 0 || n.Bool(body) {
				a.FullContext = true
			}
		case notePartType:
			a.FullContext, a.Image = true, true // an unknown type
			a.Audio = a.Audio || strings.Contains(n.Text(body), "audio")
		case noteMediaURL:
			a.Image = true
			addURL(body, n.Value, a)
		case noteAudioURL:
			a.Audio = true
			addURL(body, n.Value, a)
		case noteAudioURLs:
			eachName(body, n.Value, func(_ string, at strictjson.Value) { addURL(body, at, a) })
		case noteItemResult:
			if !isProgramResult(body, n) {
				a.FullContext, a.Image = true, true
			}
		case noteMediaData:
			a.FullContext, a.Image = true, true
		case noteAudioData:
			a.Audio = true
			switch {
			case n.Kind != strictjson.String:
			case isLink(urlHead(body, n.Value)):
				addURL(body, n.Value, a)
			default:
				addAudio(n.Value, a)
			}
		default:
			tool, ok := toolMembers[n.Name]
			if ok && !isFalse(body, n.Value) && (!tool.list || !isEmpty(body, n.Value)) {
				a.Tools = append(a.Tools, catalog.ServerTool{Param: tool.param, Name: tool.name})
			}
		}
	}
	source.addTo(body, a)
	if len(a.Tools) > 0 {
		a.FullContext = true
	}
}

// toolParam returns the path of a member of a tool. For a tool that a message, an item or a
// namespace declares, it returns the path of that.
func (q *Request) toolParam(o objectNotes, member string) string {
	switch tools := q.values[slotTools]; {
	case o.object >= tools.Start && o.object < tools.End && o.inner:
		return fmt.Sprintf("tools of tools[%d]", o.index)
	case o.object >= tools.Start && o.object < tools.End:
	case q.schema == Responses:
		return fmt.Sprintf("tools of input[%d]", o.index)
	default:
		return fmt.Sprintf("tools of messages[%d]", o.index)
	}
	return fmt.Sprintf("tools[%d].%s", o.index, member)
}

// toolName returns the type of a tool without its date: web_search_20250305 and
// web_search_2025_08_26 are web_search.
func toolName(kind string) string {
	if strings.HasPrefix(kind, "web_search_preview") { // the answer reports it as web_search
		return "web_search"
	}
	for _, length := range []int{len("_20250305"), len("_2025_08_26")} {
		if at := len(kind) - length; at > 0 && kind[at] == '_' && strings.Trim(kind[at:], "_0123456789") == "" {
			return kind[:at]
		}
	}
	return kind
}

// asksForReasoning reports whether a member with noteReasoning may ask for output that the text of the
// answer does not show. Only values that are known not to do so return false.
func asksForReasoning(body []byte, n strictjson.Note) bool {
	switch n.Member(body) {
	case "include_reasoning", "separate_reasoning", "stream_reasoning": // false hides it, or delays it
		return !n.Bool(body)
	case "chat_template_kwargs": // its members have their own notes
		return n.Kind != strictjson.Object
	}
	return !isOff(body, n.Value)
}

// isOff reports whether a value is absent or asks for no reasoning.
func isOff(body []byte, v strictjson.Value) bool {
	switch string(v.Raw(body)) {
	case "", "null", "false", "0", `"none"`, `"disabled"`:
		return true
	}
	return false
}

// addURL adds the input of a link or a data URL.
func addURL(body []byte, v strictjson.Value, a *catalog.CallSpec) {
	if v.Kind == strictjson.Object || isEmpty(body, v) { // the members of an object have their own notes
		return
	}
	head := ""
	if v.Kind == strictjson.String {
		head = urlHead(body, v)
	}
	switch {
	case strings.HasPrefix(head, "data:image/"):
		addImage(v, a)
	case strings.HasPrefix(head, "data:audio/"):
		a.Audio = true
		addAudio(v, a)
	case strings.HasPrefix(head, "data:text/"):
		addText(v, a)
	default:
		a.Links++
	}
}

func addImage(v strictjson.Value, a *catalog.CallSpec) {
	a.InlineInput += imageTokens
	a.Media.Images++
	a.BodyBytes -= int64(v.End - v.Start)
}

func addAudio(v strictjson.Value, a *catalog.CallSpec) {
	tokens := int64(v.End-v.Start)/audioBytesPerToken + 1
	a.InlineInput += tokens
	a.Media.AudioTokens += tokens
	a.BodyBytes -= int64(v.End - v.Start)
}

// addText adds text in a data URL or a source. BodyBytes includes it already, but the text of
// the messages does not.
func addText(v strictjson.Value, a *catalog.CallSpec) {
	a.Media.TextBytes += int64(v.End - v.Start - 2)
}

// mediaSource is the source of one part.
type mediaSource struct {
	object  int                                                  // zero: there is none
	members [noteSourceURL - noteSourceType + 1]strictjson.Value // by note
}

// addTo adds the input of the source: an image counts imageTokens, text its bytes, anything
// else the whole context.
func (s *mediaSource) addTo(body []byte, a *catalog.CallSpec) {
	if s.object == 0 {
		return
	}
	member := func(note int) strictjson.Value { return s.members[note-noteSourceType] }
	kind, media := member(noteSourceType).Text(body), member(noteSourceMedia).Text(body)
	data := member(noteSourceData)
	switch {
	case member(noteSourceURL).Kind != 0:
		a.Links++
		a.Image = true
	case kind == "content" && data.Kind == 0: // its parts have their own notes
	case kind == "text":
		if data.Kind != 0 {
			addText(data, a)
		}
	case kind == "base64" && strings.HasPrefix(media, "image/"):
		a.Image = true
		if data.Kind != 0 {
			addImage(data, a)
		}
	default:
		a.FullContext, a.Image = true, true
	}
}

// AsksPCM reports whether the body requests uncompressed speech.
func (q *Request) AsksPCM(body []byte) bool {
	if q.schema.Unit == catalog.CharacterUnit {
		format := q.values[slotFormat].Text(body)
		return format == "wav" || format == "pcm"
	}
	for _, n := range q.notes {
		if n.Name == noteAudioOutput {
			var audio struct{ Format string }
			_ = json.Unmarshal(n.Raw(body), &audio)
			return audio.Format == "wav" || audio.Format == "pcm16"
		}
	}
	return false
}
