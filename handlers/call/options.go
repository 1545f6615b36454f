package call

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// refuseUnpriced refuses what a body with a price may not have: members whose
// effect on the price is not known, except those in passes, and members that may
// have the backend make more answers than are reserved for.
func (q *request) refuseUnpriced(body []byte, passes map[string]bool) *fault.Fault {
	for _, n := range q.notes {
		switch n.Name {
		case noteMultiplier:
			if count, ok := n.Int(body); ok && count == 1 || isFalse(body, n.Value) {
				continue
			}
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param,
				"`%s` multiplies the answers, which this route does not price: leave it out; allowed: `n` on /v1/chat/completions, `n` and `best_of` on /v1/completions", param)
		case noteUntypedTool:
			param := strictjson.PathOf(body, n.Start) + ".type"
			return fault.At(fault.InvalidParameter, param, "`%s` is missing: a tool without a type has no price here; allowed: `function`, `custom`", param)
		}
		if where, ok := otherMembers[n.Name]; ok && !isFalse(body, n.Value) && !passes[where+n.Member(body)] {
			return q.unpricedMember(body, n, where)
		}
	}
	return nil
}

// unpricedMember is the refusal of a member whose effect on the price is not known.
func (q *request) unpricedMember(body []byte, n strictjson.Note, where string) *fault.Fault {
	param, word := strictjson.PathOf(body, n.Start), passMember
	if name := n.Member(body); param == name || strings.HasSuffix(param, "."+name) { // it is not quoted there
		word += " " + where + name
	}
	return fault.At(fault.UnpricedOption, param,
		"`%s` is not known to the gateway and may change the price: leave it out; the operator can let it pass by `%s`", param, word)
}

// objectFacts is what the notes say of one tool or fallback.
type objectFacts struct {
	object, index int
	toolType      string
	model         strictjson.Note
	uses, tokens  int64
}

// objects gathers the notes of tools and fallbacks by the object they are in,
// whose notes follow each other.
func (q *request) objects(body []byte) (list []objectFacts) {
	for _, n := range q.notes {
		switch n.Name {
		case noteToolType, noteToolModel, noteFallbackModel, noteMaxUses, noteMaxTokens:
		default:
			continue
		}
		if last := len(list) - 1; last < 0 || list[last].object != n.Object {
			list = append(list, objectFacts{object: n.Object, index: n.Index})
		}
		o := &list[len(list)-1]
		switch n.Name {
		case noteToolType:
			o.toolType = n.Text(body)
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

// What is reserved for media in the body. docs/guide/pricing.md#what-a-call-reserves has these rules.
const (
	// imageTokens is what an image may take: above what the dearest documented
	// model counts for one, 48,169 (2,833 and 5,667 for each of 8 tiles).
	imageTokens = 50_000

	// audioBytesPerToken is how many characters of Base64 a token of audio has at
	// least: 6 kbit/s are 1,000 of them a second, and 32 tokens a second are the
	// most that is documented.
	audioBytesPerToken = 16
)

// describe says what the notes of a body ask for.
func (q *request) describe(body []byte, a *catalog.Ask) {
	a.Models = q.named
	for _, m := range q.named {
		if !strings.HasPrefix(m.Param, "tools") && a.HasMaxTokens {
			a.MaxTokens = max(a.MaxTokens, m.MaxTokens) // a fallback may have a bound of its own
		}
	}
	for _, o := range q.objects(body) {
		name := toolName(o.toolType)
		a.FullContext = a.FullContext || o.model.Kind != 0 // it is among Models, and has a price of its own
		if name == "" || name == "advisor" && o.model.Kind != 0 || slices.Contains(clientTools, name) {
			continue
		}
		a.Tools = append(a.Tools, catalog.ServerTool{Param: q.toolParam(o, "type"), Name: name, MaxUses: o.uses})
	}
	var source sourceFacts
	for _, n := range q.notes {
		switch n.Name {
		case noteSourceType, noteSourceMedia, noteSourceData, noteSourceURL:
			if n.Object != source.object {
				source.judge(body, a)
				source = sourceFacts{object: n.Object}
			}
			source.take(n)
		case noteTier:
			a.Tiers = append(a.Tiers, catalog.Option{Param: "service_tier", Value: n.Text(body)})
		case noteSpeed:
			a.Tiers = append(a.Tiers, catalog.Option{Param: "speed", Value: n.Text(body)})
		case noteGeo:
			a.Geo = catalog.Option{Param: "inference_geo", Value: n.Text(body)}
		case noteEdit:
			if !strings.HasPrefix(n.Text(body), "clear_") {
				a.Compaction, a.FullContext = true, true
			}
		case noteOutputBound:
			a.FullOutput = true
		case noteModalities:
			for _, raw := range elementsOf(n.Raw(body)) {
				switch strings.ToLower(textOf(raw)) {
				case "text":
				case "audio":
					a.Audio, a.AudioParam = true, cmp.Or(a.AudioParam, "modalities")
				default:
					a.Image, a.ImageOut = true, true
				}
			}
		case noteSpeech:
			a.Audio, a.AudioParam = true, cmp.Or(a.AudioParam, "audio")
		case noteReasoning:
			a.Thinking = a.Thinking || n.Kind == strictjson.Object
		case noteCompaction:
			a.Compaction, a.FullContext = true, true
		case noteState, noteAgent:
			a.FullContext = a.FullContext || !empty(body, n.Value)
		case noteDocuments:
			a.FullContext = a.FullContext || !inlineDocuments(n.Raw(body))
		case noteDeep:
			if n.Kind&(strictjson.Array|strictjson.Object) != 0 || n.Bool(body) {
				a.FullContext = true
			}
		case notePartType:
			a.FullContext, a.Image = true, true // whatever it is
			a.Audio = a.Audio || strings.Contains(n.Text(body), "audio")
		case noteURL:
			a.Image = true
			judgeURL(body, n.Value, a)
		case noteAudioURL:
			a.Audio = true
			judgeURL(body, n.Value, a)
		case noteData:
			a.FullContext, a.Image = true, true
		case noteAudioData:
			a.Audio = true
			switch {
			case n.Kind != strictjson.String:
			case isLink(urlHead(body, n.Value)):
				judgeURL(body, n.Value, a)
			default:
				inlineAudio(n.Value, a)
			}
		default:
			tool, ok := memberTools[n.Name]
			if ok && !isFalse(body, n.Value) && (!tool.list || !empty(body, n.Value)) {
				a.Tools = append(a.Tools, catalog.ServerTool{Param: tool.param, Name: tool.name})
			}
		}
	}
	source.judge(body, a)
	if len(a.Tools) > 0 {
		a.FullContext = true
	}
}

// toolParam is the path of a member of a tool. Tools that a message declares are
// named by the message.
func (q *request) toolParam(o objectFacts, member string) string {
	if tools := q.fields[slotTools]; o.object < tools.Start || o.object >= tools.End {
		return fmt.Sprintf("tools of messages[%d]", o.index)
	}
	return fmt.Sprintf("tools[%d].%s", o.index, member)
}

// toolName is the type of a tool without its date: web_search_20250305 and
// web_search_2025_08_26 are web_search.
func toolName(kind string) string {
	for _, length := range []int{len("_20250305"), len("_2025_08_26")} {
		if at := len(kind) - length; at > 0 && kind[at] == '_' && strings.Trim(kind[at:], "_0123456789") == "" {
			return kind[:at]
		}
	}
	return kind
}

// judgeURL adds what a link, or a data URL, may take.
func judgeURL(body []byte, v strictjson.Value, a *catalog.Ask) {
	if v.Kind == strictjson.Object || empty(body, v) { // members of an object are noted
		return
	}
	head := ""
	if v.Kind == strictjson.String {
		head = urlHead(body, v)
	}
	switch {
	case strings.HasPrefix(head, "data:image/"):
		inlineImage(v, a)
	case strings.HasPrefix(head, "data:audio/"):
		a.Audio = true
		inlineAudio(v, a)
	case strings.HasPrefix(head, "data:text/"):
		inlineText(v, a)
	default:
		a.Links++
	}
}

func inlineImage(v strictjson.Value, a *catalog.Ask) {
	a.InlineInput += imageTokens
	a.Media.Images++
	a.BodyBytes -= int64(v.End - v.Start)
}

func inlineAudio(v strictjson.Value, a *catalog.Ask) {
	tokens := int64(v.End-v.Start)/audioBytesPerToken + 1
	a.InlineInput += tokens
	a.Media.AudioTokens += tokens
	a.BodyBytes -= int64(v.End - v.Start)
}

// inlineText is counted with the bytes of the body, but is no text of a message.
func inlineText(v strictjson.Value, a *catalog.Ask) { a.Media.TextBytes += int64(v.End - v.Start - 2) }

// sourceFacts is what the notes say of the source of one part.
type sourceFacts struct {
	object                 int // zero: there is none
	kind, media, data, url strictjson.Value
}

func (s *sourceFacts) take(n strictjson.Note) {
	switch n.Name {
	case noteSourceType:
		s.kind = n.Value
	case noteSourceMedia:
		s.media = n.Value
	case noteSourceData:
		s.data = n.Value
	case noteSourceURL:
		s.url = n.Value
	}
}

// judge adds what the source may take: an image by its rule, text by its bytes,
// anything else the whole context.
func (s *sourceFacts) judge(body []byte, a *catalog.Ask) {
	if s.object == 0 {
		return
	}
	kind, media := s.kind.Text(body), s.media.Text(body)
	switch {
	case s.url.Kind != 0:
		a.Links++
		a.Image = true
	case kind == "content" && s.data.Kind == 0: // its parts are noted
	case kind == "text":
		if s.data.Kind != 0 {
			inlineText(s.data, a)
		}
	case kind == "base64" && strings.HasPrefix(media, "image/"):
		a.Image = true
		if s.data.Kind != 0 {
			inlineImage(s.data, a)
		}
	default:
		a.FullContext, a.Image = true, true
	}
}
