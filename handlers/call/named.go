package call

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// namedModels are the models that the body names beside its own.
func (q *request) namedModels(body []byte) (list []catalog.NamedModel) {
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

// fallbackParam is the path of the model of a fallback.
func fallbackParam(body []byte, n strictjson.Note) string {
	if n.Index < 0 {
		return strictjson.PathOf(body, n.Start)
	}
	return fmt.Sprintf("fallbacks[%d].model", n.Index)
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
