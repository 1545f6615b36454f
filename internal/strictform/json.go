package strictform

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// JSON returns the form as a JSON object, so that it is checked by the rules of a JSON body. The value
// of a field is a boolean, an integer or a number if members has a rule for one and the text is exactly
// that; otherwise it is a string. name[] is an element of the array name, and name[member] is a
// member of the object name. A file is its size in bytes. files has the names of files, and how many
// of each are allowed.
func (f *Form) JSON(members *strictjson.Table, files map[string]int) ([]byte, *fault.Fault) {
	var order []string
	values := make(map[string][]string) // by name, and what is in the brackets: one JSON text for each part
	add := func(key, value string) {
		if values[key] == nil {
			order = append(order, key)
		}
		values[key] = append(values[key], value)
	}
	for _, part := range f.Parts {
		name, inner, brackets := strings.Cut(part.Name, "[")
		inner, closed := strings.CutSuffix(inner, "]")
		if brackets != closed || name == "" || strings.ContainsAny(name+inner, "[]") {
			return nil, fault.At(fault.InvalidParameter, part.Name, "`%s` is not the name of a field; allowed: name, name[], name[member]", part.Name)
		}
		allowed, isFile := files[name]
		key := name
		if brackets && (inner != "" || !isFile) {
			key = part.Name
		}
		switch {
		case part.File && (!isFile || inner != ""):
			return nil, fault.At(fault.InvalidParameter, part.Name, "`%s` is not a file here; allowed: %s", part.Name, names(files))
		case isFile && !part.File:
			return nil, fault.At(fault.InvalidParameter, name, "`%s` must be a file: it needs a file name", name)
		case isFile:
			if len(values[key]) == allowed {
				return nil, fault.At(fault.InvalidParameter, name, "`%s`: too many files; allowed: %d", name, allowed)
			}
			add(key, strconv.Itoa(len(part.Data)))
		default:
			add(key, literal(string(part.Data), members.Kinds(part.Name)))
		}
	}
	body := []byte{'{'}
	member := func(name, value string) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(strconv.AppendQuote(body, name), ':') // a name has no character that needs an escape
		body = append(body, value...)
	}
	done := make(map[string]bool)
	for _, key := range order {
		name, inner, brackets := strings.Cut(key, "[")
		_, isFile := files[name]
		switch list := values[key]; {
		case brackets && inner == "]", isFile && files[name] > 1:
			member(name, "["+strings.Join(list, ",")+"]")
		case brackets && !done[name]:
			done[name] = true
			member(name, object(name, order, values))
		case !brackets:
			for _, value := range list { // a repeated one is refused by the rules
				member(name, value)
			}
		}
	}
	return append(body, '}'), nil
}

// object returns the object whose members are the fields name[member].
func object(name string, order []string, values map[string][]string) string {
	var members []string
	for _, key := range order {
		if inner, ok := strings.CutPrefix(key, name+"["); ok && inner != "]" {
			for _, value := range values[key] {
				members = append(members, strconv.Quote(strings.TrimSuffix(inner, "]"))+":"+value)
			}
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// literal returns a text as JSON.
func literal(text string, kinds strictjson.Kind) string {
	const numbers = strictjson.Number | strictjson.Integer
	switch {
	case kinds&strictjson.String != 0:
	case kinds&strictjson.Bool != 0 && (text == "true" || text == "false"):
		return text
	case kinds&numbers != 0 && strings.Trim(text, "0123456789.eE+-") == "" && json.Valid([]byte(text)):
		return text
	}
	quoted, _ := json.Marshal(text) // a string cannot fail
	return string(quoted)
}

func names(files map[string]int) string {
	list := make([]string, 0, len(files))
	for name := range files {
		list = append(list, name)
	}
	if len(list) == 2 && list[0] > list[1] {
		list[0], list[1] = list[1], list[0]
	}
	return strings.Join(list, ", ")
}
