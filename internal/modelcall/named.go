package modelcall

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// namedModels returns the models that the body names in members other than `model`.
func (q *Request) namedModels(body []byte) (list []catalog.NamedModel) {
	for _, o := range q.objects(body) {
		switch {
		case o.model.Kind == 0:
		case o.model.Name == noteToolModel:
			list = append(list, catalog.NamedModel{
				Param: q.toolParam(o, "model"), Name: o.model.Text(body), MaxUses: o.uses, MaxTokens: o.tokens,
			})
		default:
			list = append(list, catalog.NamedModel{Param: fallbackParam(body, o.model), Name: o.model.Text(body), MaxTokens: o.tokens})
		}
	}
	for _, n := range q.notes {
		switch n.Name {
		case noteFallbackList:
			list = appendNames(list, "fallbacks", n.Raw(body))
		case noteModelList:
			list = appendNames(list, "models", n.Raw(body))
		case noteAdapter:
			list = appendNames(list, "lora_path", n.Raw(body))
		case noteModeration:
			list = append(list, catalog.NamedModel{Param: "moderation.model", Name: n.Text(body)})
		}
	}
	return list
}

// appendNames appends the names in a string or in an array that may contain strings.
func appendNames(list []catalog.NamedModel, member string, raw []byte) []catalog.NamedModel {
	if raw[0] == '"' {
		return append(list, catalog.NamedModel{Param: member, Name: unquote(raw)})
	}
	for i, raw := range elements(raw) {
		if raw[0] == '"' {
			list = append(list, catalog.NamedModel{Param: fmt.Sprintf("%s[%d]", member, i), Name: unquote(raw)})
		}
	}
	return list
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
