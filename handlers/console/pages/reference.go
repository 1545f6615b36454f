package pages

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/caddy-modelgate/modelgate/docs"
)

// chapter is the operations of a tag of the OpenAPI document.
type chapter struct {
	Name, Slug, Description string
	Operations              []operation
}

type operation struct {
	ID, Method, Path, Summary, Description string
	Security                               []string // names of the credentials, each of which suffices
	StepUp                                 bool
	Parameters, Body                       []field
	Examples                               []string
	Answers                                []answered
}

type answered struct {
	Status, Description string
	Fields              []field
	Examples            []string
}

// field is a parameter, or a member of a body by its path.
type field struct {
	Name, Type, In, Description string
	Required                    bool
}

// chapters returns the OpenAPI document as the reference shows it. The first call reads it; what it
// keeps is a small part of the document.
var chapters = sync.OnceValues(func() ([]chapter, error) {
	var whole yaml.Node
	if err := yaml.Unmarshal(docs.OpenAPI, &whole); err != nil {
		return nil, err
	}
	d := document{whole.Content[0]}
	var all []chapter
	for _, tag := range d.at(d.root, "tags").Content {
		name := d.text(tag, "name")
		all = append(all, chapter{Name: name, Slug: strings.ReplaceAll(strings.ToLower(name), " ", "-"), Description: d.text(tag, "description")})
	}
	for _, part := range []string{"paths", "webhooks"} {
		for path, methods := range pairsOf(d.at(d.root, part)) {
			for method, node := range pairsOf(methods) {
				for _, tag := range d.at(node, "tags").Content {
					i := slices.IndexFunc(all, func(c chapter) bool { return c.Name == tag.Value })
					all[i].Operations = append(all[i].Operations, d.operation(strings.ToUpper(method), path, node))
				}
			}
		}
	}
	return all, nil
})

// document is the OpenAPI document. Its nodes keep the order of members.
type document struct{ root *yaml.Node }

// none is a node without content.
var none = new(yaml.Node)

// pairsOf iterates over the members of an object.
func pairsOf(n *yaml.Node) func(yield func(string, *yaml.Node) bool) {
	return func(yield func(string, *yaml.Node) bool) {
		for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i].Value, n.Content[i+1]) {
				return
			}
		}
	}
}

// at returns a member of a member, after references; none if there is none.
func (d document) at(n *yaml.Node, path ...string) *yaml.Node {
	for _, name := range path {
		found := none
		for member, value := range pairsOf(d.resolve(n)) {
			if member == name {
				found = value
			}
		}
		n = found
	}
	return d.resolve(n)
}

func (d document) text(n *yaml.Node, name string) string {
	return strings.TrimSpace(d.at(n, name).Value)
}

// resolve follows a reference.
func (d document) resolve(n *yaml.Node) *yaml.Node {
	for member, value := range pairsOf(n) {
		if pointer, local := strings.CutPrefix(value.Value, "#/"); member == "$ref" && local {
			return d.at(d.root, strings.Split(pointer, "/")...)
		}
	}
	return n
}

func (d document) operation(method, path string, n *yaml.Node) operation {
	op := operation{
		ID: d.text(n, "operationId"), Method: method, Path: path, Summary: d.text(n, "summary"), Description: d.text(n, "description"),
		StepUp: d.at(n, "x-step-up") != none,
	}
	for _, one := range d.at(n, "security").Content {
		for name := range pairsOf(one) {
			op.Security = append(op.Security, name)
		}
	}
	for _, p := range d.at(n, "parameters").Content {
		op.Parameters = append(op.Parameters, field{
			Name: d.text(p, "name"), In: d.text(p, "in"), Type: d.typeOf(d.at(p, "schema")), Description: d.text(p, "description"), Required: d.text(p, "required") == "true",
		})
	}
	op.Body, op.Examples = d.content(d.at(n, "requestBody"))
	for status, a := range pairsOf(d.at(n, "responses")) {
		if status == "default" { // the form of errors, which is the same everywhere
			continue
		}
		shown := answered{Status: status, Description: d.text(a, "description")}
		shown.Fields, shown.Examples = d.content(a)
		op.Answers = append(op.Answers, shown)
	}
	return op
}

// content returns the members and the examples of a body.
func (d document) content(n *yaml.Node) (fields []field, examples []string) {
	for _, media := range pairsOf(d.at(n, "content")) {
		d.fields(&fields, "", d.at(media, "schema"), 0)
		if example := d.at(media, "example"); example != none {
			examples = append(examples, indented(example))
		}
		for _, named := range pairsOf(d.at(media, "examples")) {
			examples = append(examples, indented(d.at(named, "value")))
		}
	}
	return fields, examples
}

// maxDepth is how deep the reference shows the members of members.
const maxDepth = 3

// fields appends the members of a schema, with those of the schemas that it consists of.
func (d document) fields(all *[]field, prefix string, schema *yaml.Node, depth int) {
	for _, combination := range []string{"allOf", "oneOf", "anyOf"} {
		for _, part := range d.at(schema, combination).Content {
			d.fields(all, prefix, d.resolve(part), depth)
		}
	}
	if items := d.at(schema, "items"); items != none {
		d.fields(all, prefix+"[]", items, depth)
	}
	required := d.at(schema, "required").Content
	for name, value := range pairsOf(d.at(schema, "properties")) {
		path := strings.TrimPrefix(prefix+"."+name, ".")
		schema := d.resolve(value)
		f := field{Name: path, Type: d.typeOf(schema), Description: d.text(value, "description"), Required: slices.ContainsFunc(required, func(n *yaml.Node) bool { return n.Value == name })}
		if i := slices.IndexFunc(*all, func(f field) bool { return f.Name == path }); i >= 0 {
			(*all)[i] = f
		} else {
			*all = append(*all, f)
		}
		if depth < maxDepth {
			d.fields(all, path, schema, depth+1)
		}
	}
}

// typeOf returns the type of a schema in words.
func (d document) typeOf(schema *yaml.Node) string {
	if choice := d.at(schema, "enum"); choice != none {
		words := make([]string, len(choice.Content))
		for i, word := range choice.Content {
			words[i] = word.Value
		}
		return strings.Join(words, " | ")
	}
	kind := d.text(schema, "type")
	for _, one := range d.at(schema, "type").Content {
		kind = strings.TrimPrefix(kind+" | "+one.Value, " | ")
	}
	if items := d.at(schema, "items"); items != none {
		kind = "array of " + d.typeOf(items)
	}
	if kind == "" {
		kind = "object"
		if constant := d.text(schema, "const"); constant != "" {
			kind = constant
		}
	}
	for _, bound := range [][2]string{{"minimum", "from %s"}, {"maximum", "to %s"}, {"maxLength", "at most %s characters"}, {"default", "default %s"}} {
		if value := d.text(schema, bound[0]); value != "" {
			kind += ", " + fmt.Sprintf(bound[1], value)
		}
	}
	return kind
}

// indented returns a value as JSON, with its members in the order of the document.
func indented(n *yaml.Node) string {
	var compact, wide bytes.Buffer
	writeJSON(&compact, n)
	if err := json.Indent(&wide, compact.Bytes(), "", "  "); err != nil {
		return n.Value // a text that is no JSON, such as a stream
	}
	return wide.String()
}

func writeJSON(w *bytes.Buffer, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		separator := byte('{')
		for name, value := range pairsOf(n) {
			w.WriteByte(separator)
			fmt.Fprintf(w, "%q:", name)
			writeJSON(w, value)
			separator = ','
		}
		w.WriteString(map[byte]string{'{': "{}", ',': "}"}[separator])
	case yaml.SequenceNode:
		w.WriteByte('[')
		for i, element := range n.Content {
			if i > 0 {
				w.WriteByte(',')
			}
			writeJSON(w, element)
		}
		w.WriteByte(']')
	default:
		var value any
		_ = n.Decode(&value)
		text, _ := json.Marshal(value)
		w.Write(text)
	}
}
