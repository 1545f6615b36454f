package modelcall

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// findNamed sets Named and namedAt: the models that the body names in members other than `model`, and
// where their names are.
func (q *Request) findNamed(body []byte) {
	add := func(m catalog.NamedModel, at strictjson.Value) {
		q.Named, q.namedAt = append(q.Named, m), append(q.namedAt, at)
	}
	for _, o := range q.objects(body) {
		switch {
		case o.model.Kind == 0:
		case o.model.Name == noteToolModel:
			add(catalog.NamedModel{
				Param: q.toolParam(o, "model"), Name: o.model.Text(body), MaxUses: o.uses, MaxTokens: o.tokens,
			}, o.model.Value)
		default:
			add(catalog.NamedModel{Param: fallbackParam(body, o.model), Name: o.model.Text(body), MaxTokens: o.tokens}, o.model.Value)
		}
	}
	for _, n := range q.notes {
		switch n.Name {
		case noteFallbackList, noteModelList, noteAdapter:
			eachName(body, n.Value, func(index string, at strictjson.Value) {
				add(catalog.NamedModel{Param: nameLists[n.Name] + index, Name: at.Text(body)}, at)
			})
		case noteModeration:
			add(catalog.NamedModel{Param: "moderation.model", Name: n.Text(body)}, n.Value)
		}
	}
}

// nameLists has the members that are a name or an array of names, by their notes.
var nameLists = map[int]string{noteFallbackList: "fallbacks", noteModelList: "models", noteAdapter: "lora_path"}

// eachName calls found for a string, or for each string of an array, with its index in the form [0].
func eachName(body []byte, v strictjson.Value, found func(index string, at strictjson.Value)) {
	if v.Kind == strictjson.String {
		found("", v)
		return
	}
	if v.Kind != strictjson.Array {
		return
	}
	at := v.Start + 1
	for i, raw := range elements(v.Raw(body)) {
		at += bytes.Index(body[at:v.End], raw) // between two elements there is space and a comma
		if raw[0] == '"' {
			found(fmt.Sprintf("[%d]", i), strictjson.Value{Kind: strictjson.String, Start: at, End: at + len(raw)})
		}
		at += len(raw)
	}
}

// Rename returns the edits that replace each name of a model in the body by another one, the last
// edit first. It leaves `"fallbacks":"default"` as it is, which names no model. After the edits, the
// body must be parsed again.
func (q *Request) Rename(body []byte, target func(model string) string) (edits []Edit) {
	replace := func(name string, at strictjson.Value) {
		if other := target(name); other != name && at.Kind == strictjson.String {
			edits = append(edits, Edit{at.Start, at.End, quote(other)})
		}
	}
	replace(q.Model, q.values[slotModel])
	for i, m := range q.Named {
		if m.Param != "fallbacks" || m.Name != "default" {
			replace(m.Name, q.namedAt[i])
		}
	}
	slices.SortFunc(edits, func(a, b Edit) int { return b.From - a.From })
	return edits
}

// NameModel returns the edit that writes the default model of the route into a body that has none, so
// that the backend answers with the model that is priced. It returns false if the body needs no edit.
// After the edit, the body must be parsed again.
func (q *Request) NameModel() (Edit, bool) {
	model := q.values[slotModel]
	switch {
	case q.schema.defaultModel == "" || model.Kind == text:
		return Edit{}, false
	case model.Kind == null:
		return q.RenameModel(q.schema.defaultModel), true
	}
	at := q.values[0].Start + 1
	return Edit{at, at, `"model":` + quote(q.schema.defaultModel) + `,`}, true
}

// RenameModel returns the edit that replaces the model of the call by another one.
func (q *Request) RenameModel(model string) Edit {
	return Edit{q.values[slotModel].Start, q.values[slotModel].End, quote(model)}
}

// quote returns the string of a text.
func quote(text string) string {
	raw, err := json.Marshal(text)
	if err != nil {
		panic("modelcall: " + err.Error()) // a string cannot fail to marshal
	}
	return string(raw)
}

// elements returns the elements of an array whose grammar was checked.
func elements(raw []byte) (list []json.RawMessage) {
	_ = json.Unmarshal(raw, &list)
	return list
}

// unquote returns the text of a string whose grammar was checked.
func unquote(raw []byte) (text string) {
	_ = json.Unmarshal(raw, &text)
	return text
}

// fallbackParam returns the path of the model of a fallback.
func fallbackParam(body []byte, n strictjson.Note) string {
	if n.Index < 0 {
		return strictjson.PathOf(body, n.Start)
	}
	return fmt.Sprintf("fallbacks[%d].model", n.Index)
}
