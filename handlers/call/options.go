package call

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// refuseState refuses what names something that the vendor keeps for the account
// of the operator, unless all users of the gateway share it, and a body that says
// a second time, in extra_body, what is read at the top.
func (q *request) refuseState(body []byte, shared bool) *fault.Fault {
	for _, n := range q.notes {
		switch n.Name {
		case noteOverride:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is not allowed: give it at the top of the body", param)
		case noteRouting:
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param, "`%s` is not allowed: a call names its models in `model` and `fallbacks[].model`", param)
		case noteState:
			if n.Kind == strictjson.Bool && !n.Bool(body) {
				continue
			}
		case notePartType:
			if !slices.Contains(statefulTypes, n.Text(body)) {
				continue
			}
		case noteURL, noteAudioURL, noteSourceURL:
			if n.Kind != strictjson.String || knownScheme(urlHead(body, n.Value)) {
				continue
			}
		default:
			continue
		}
		if !shared {
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param,
				"`%s` names something kept at the vendor, whose account the users of this gateway share: it is allowed only with `state shared`; send the content itself", param)
		}
	}
	return nil
}

// refuseMultipliers refuses a body that may have the backend make more answers
// than are reserved for.
func (q *request) refuseMultipliers(body []byte) *fault.Fault {
	for _, n := range q.notes {
		if n.Name != noteMultiplier || n.Kind == strictjson.Bool && !n.Bool(body) {
			continue
		}
		if count, ok := n.Int(body); ok && count == 1 {
			continue
		}
		param := strictjson.PathOf(body, n.Start)
		return fault.At(fault.InvalidParameter, param,
			"`%s` multiplies the answers, which this route does not price: leave it out; allowed: `n` on /v1/chat/completions, `n` and `best_of` on /v1/completions", param)
	}
	return nil
}

// urlHead is the beginning of a text, where a URL tells its scheme and a data URL
// its media type. JSON may write its slashes as "\/".
func urlHead(body []byte, v strictjson.Value) string {
	raw := body[v.Start+1 : v.End-1]
	return strings.ReplaceAll(string(raw[:min(len(raw), 64)]), `\/`, "/")
}

// knownScheme reports whether a link leads to the network, or holds the content
// itself. Other schemes are names within a vendor's account or a server's disk,
// and so is a link without one.
func knownScheme(head string) bool {
	for _, scheme := range []string{"https://", "http://", "data:"} {
		if len(head) >= len(scheme) && strings.EqualFold(head[:len(scheme)], scheme) {
			return true
		}
	}
	return false
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

// namedModels are the models that the body names beside its own.
func (q *request) namedModels(body []byte) (list []catalog.NamedModel) {
	for _, o := range q.objects(body) {
		switch {
		case o.model.Kind == 0:
		case o.model.Name == noteToolModel:
			list = append(list, catalog.NamedModel{
				Param: param(body, o.model, "tools", "model"), Name: o.model.Text(body), MaxUses: o.uses, MaxTokens: o.tokens,
			})
		default:
			list = append(list, catalog.NamedModel{Param: param(body, o.model, "fallbacks", "model"), Name: o.model.Text(body), MaxTokens: o.tokens})
		}
	}
	for _, n := range q.notes {
		switch n.Name {
		case noteModels:
			list = appendNames(list, "fallbacks", n.Raw(body))
		case noteMoreModels:
			list = appendNames(list, "models", n.Raw(body))
		case noteAdapter:
			list = appendNames(list, "lora_path", n.Raw(body))
		case noteModeration:
			list = append(list, catalog.NamedModel{Param: "moderation.model", Name: n.Text(body)})
		}
	}
	return list
}

// appendNames appends the names that a string or an array with strings in it has.
func appendNames(list []catalog.NamedModel, member string, raw []byte) []catalog.NamedModel {
	if raw[0] == '"' {
		return append(list, catalog.NamedModel{Param: member, Name: textOf(raw)})
	}
	for i, raw := range elementsOf(raw) {
		if raw[0] == '"' {
			list = append(list, catalog.NamedModel{Param: fmt.Sprintf("%s[%d]", member, i), Name: textOf(raw)})
		}
	}
	return list
}

// elementsOf are the elements of an array whose grammar was checked.
func elementsOf(raw []byte) (list []json.RawMessage) {
	_ = json.Unmarshal(raw, &list)
	return list
}

// textOf is the text of a string whose grammar was checked.
func textOf(raw []byte) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
}

// param is the path of a note in an element of a member of the body.
func param(body []byte, n strictjson.Note, member, name string) string {
	if n.Index < 0 {
		return strictjson.PathOf(body, n.Start)
	}
	return fmt.Sprintf("%s[%d].%s", member, n.Index, name)
}

// checkNamed holds the models that the body names beside its own to what holds
// for that one: they have a name, the key's scope takes them in, and they have a
// price where models have one.
func (c *call) checkNamed() *fault.Fault {
	app := c.block.app
	for i := range c.request.named {
		m := &c.request.named[i]
		if f := catalog.CheckName(m.Param, m.Name); f != nil {
			return f
		}
		if f := c.mayUse(m.Param, m.Name); f != nil {
			return f
		}
		if c.route.free {
			continue
		}
		if m.Param == "fallbacks" && m.Name == "default" && app.Prices().Len() > 0 {
			return fault.At(fault.InvalidParameter, m.Param, "`fallbacks` must name the models, each of which needs a price here: \"default\" leaves the choice to the vendor")
		}
		var ok bool
		if m.Price, ok = app.PriceOf(m.Name); !ok {
			return fault.At(fault.InvalidParameter, m.Param, "there is no model %q here: it has no price for calls", m.Name)
		}
		if own, _ := app.PriceOf(c.request.model); own == nil && m.Price != nil {
			return fault.At(fault.InvalidParameter, m.Param, "a call of %q is free and may not name %q, which has a price", c.request.model, m.Name)
		}
	}
	return nil
}

// What is reserved for media in the body. README.md tells these rules.
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
		if !strings.HasPrefix(m.Param, "tools[") && a.HasMaxTokens {
			a.MaxTokens = max(a.MaxTokens, m.MaxTokens) // a fallback may have a bound of its own
		}
	}
	for _, o := range q.objects(body) {
		if o.model.Kind != 0 {
			a.FullContext = true // its model is among Models, and has a price of its own
			continue
		}
		name := toolName(o.toolType)
		if name == "" || slices.Contains(clientTools, name) {
			continue
		}
		a.Tools = append(a.Tools, catalog.ServerTool{Param: fmt.Sprintf("tools[%d].type", o.index), Name: name, MaxUses: o.uses})
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
				switch textOf(raw) {
				case "audio":
					a.Audio = true
				case "image":
					a.Image, a.ImageOut = true, true
				}
			}
		case noteSpeech:
			a.Audio = true
		case noteReasoning:
			a.Thinking = a.Thinking || n.Kind == strictjson.Object
		case noteState, noteDeep:
			if n.Name == noteState && n.Kind != strictjson.Bool || n.Kind&(strictjson.Array|strictjson.Object) != 0 || n.Bool(body) {
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
		case noteAudioData:
			a.Audio = true
			if n.Kind == strictjson.String {
				inlineAudio(n.Value, a)
			}
		default:
			if tool, ok := memberTools[n.Name]; ok && (n.Kind != strictjson.Bool || n.Bool(body)) && !emptyArray(body, n.Value) {
				a.Tools = append(a.Tools, catalog.ServerTool{Param: tool.param, Name: tool.name})
			}
		}
	}
	source.judge(body, a)
	if len(a.Tools) > 0 {
		a.FullContext = true
	}
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

func emptyArray(body []byte, v strictjson.Value) bool {
	return v.Kind == strictjson.Array && len(bytes.TrimSpace(body[v.Start+1:v.End-1])) == 0
}

// judgeURL adds what a link, or a data URL, may take.
func judgeURL(body []byte, v strictjson.Value, a *catalog.Ask) {
	if v.Kind == strictjson.Object { // its members are noted
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
	case strings.HasPrefix(head, "data:text/"): // is text of the body
	default:
		a.FullContext = true
	}
}

func inlineImage(v strictjson.Value, a *catalog.Ask) {
	a.InlineInput += imageTokens
	a.BodyBytes -= int64(v.End - v.Start)
}

func inlineAudio(v strictjson.Value, a *catalog.Ask) {
	a.InlineInput += int64(v.End-v.Start)/audioBytesPerToken + 1
	a.BodyBytes -= int64(v.End - v.Start)
}

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
		a.FullContext, a.Image = true, true
	case kind == "content" && s.data.Kind == 0: // its parts are noted
	case kind == "text":
	case kind == "base64" && strings.HasPrefix(media, "image/"):
		a.Image = true
		if s.data.Kind != 0 {
			inlineImage(s.data, a)
		}
	default:
		a.FullContext, a.Image = true, true
	}
}

// ownIdempotencyKey has the caller's idempotency keys differ from those of any
// other API key, with which it may share the account at the vendor: an answer
// that is kept there must not be another tenant's.
func ownIdempotencyKey(header http.Header, keyID string) {
	values := header["Idempotency-Key"]
	if len(values) == 0 {
		return
	}
	sum := sha256.Sum256([]byte(keyID))
	prefix := hex.EncodeToString(sum[:8]) + "-"
	own := make([]string, len(values))
	for i, value := range values {
		own[i] = prefix + value
	}
	header["Idempotency-Key"] = own
}
