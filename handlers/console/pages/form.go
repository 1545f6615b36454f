package pages

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// encode returns the fields of a form as the object that the API takes. fields are names with
// their kind, separated by spaces: "name models:list expires:date limits.budget". A name with a
// dot is a member of a member, and one such as "inputs[0].url" a member of an element of a list. An
// empty field is left out, or with "!" after its kind, sent as the value that removes what there is.
// A name with "=" and the name of another field takes the text of that field, unless it is empty. A field
// with "?" and the name of another field at its end is left out if that field is empty. Kinds:
//
//	name           a text
//	name:amount    an amount of money
//	name:sum       an amount of money above zero
//	name:reason    a text that is not empty: why an action is taken
//	name:case      the number of a case, in the form of an idempotency key
//	name:int       a number
//	name:list      words, separated by spaces, commas or lines
//	name:date      a time: the seconds since 1970 of 2026-11-24 or 2026-11-24T10:00, in UTC
//	name:bool      true if the field is there
func encode(fields string, form url.Values) (map[string]any, *Fault) {
	in := make(map[string]any)
	for field := range strings.FieldsSeq(fields) {
		field, other, depends := strings.Cut(field, "?")
		if depends && strings.TrimSpace(form.Get(other)) == "" {
			continue
		}
		field, whole := strings.CutSuffix(field, "!")
		name, kind, _ := strings.Cut(field, ":")
		name, replacement, _ := strings.Cut(name, "=")
		text := cmp.Or(strings.TrimSpace(form.Get(replacement)), strings.TrimSpace(form.Get(name)))
		if kind == "" && slices.Contains(secretFields, name) {
			text = form.Get(name) // a password may begin with a space
		}
		if text == "" && !whole && kind != "bool" {
			continue
		}
		value, ok := kinds[kind](text)
		if !ok {
			return nil, &Fault{Status: http.StatusBadRequest, Code: "INVALID_PARAMETER", Param: name, Message: "error.field_" + kind}
		}
		object := in
		for {
			outer, inner, nested := strings.Cut(name, ".")
			if !nested {
				object[name] = value
				break
			}
			if object[outer] == nil {
				object[outer] = make(map[string]any)
			}
			object, name = object[outer].(map[string]any), inner
		}
	}
	gather(in)
	return in, nil
}

// gather makes lists of the members "name[0]", "name[1]" and so on. At most ten elements have an
// order.
func gather(in map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(in)) {
		if name, _, element := strings.Cut(key, "["); element {
			list, _ := in[name].([]any)
			in[name] = append(list, in[key])
			delete(in, key)
		}
	}
}

// kinds convert the text of a field.
var kinds = map[string]func(text string) (value any, ok bool){
	"": func(text string) (any, bool) { return text, true },
	"amount": func(text string) (any, bool) {
		text = cmp.Or(text, "0")
		return text, true
	},
	"sum": func(text string) (any, bool) {
		amount, err := money.Parse(text)
		return text, err == nil && amount > 0
	},
	"reason": func(text string) (any, bool) { return text, text != "" },
	"case": func(text string) (any, bool) {
		return text, len(text) <= 255 && !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' })
	},
	"int": func(text string) (any, bool) {
		if text == "" {
			return 0, true
		}
		n, err := strconv.ParseInt(text, 10, 64)
		return n, err == nil
	},
	"list": func(text string) (any, bool) {
		return append([]string{}, strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,\t\r\n", r) })...), true
	},
	"date": func(text string) (any, bool) {
		if text == "" {
			return 0, true
		}
		for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", "2006-01-02"} {
			if at, err := time.Parse(layout, text); err == nil {
				return at.Unix(), true
			}
		}
		return nil, false
	},
	"bool": func(text string) (any, bool) { return text != "", true },
}
