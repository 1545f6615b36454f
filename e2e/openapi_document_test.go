package e2e

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// object is a JSON object.
type object = map[string]any

// openAPI is the document of a gateway with closed schemas: they refuse every member that is
// not described. The schemas of the document itself are open, for later versions.
type openAPI struct {
	root     object
	compiler *jsonschema.Compiler
}

// newOpenAPI reads the document.
func newOpenAPI(t *testing.T, text string) *openAPI {
	t.Helper()
	root, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	d := &openAPI{root.(object), jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	closeSchemas(d.root, false)
	if err := d.compiler.AddResource("openapi.json", root); err != nil {
		t.Fatal(err)
	}
	return d
}

// closeSchemas makes every schema with members or parts refuse unknown members, except the parts
// themselves: the schema around them checks the members.
func closeSchemas(node any, part bool) {
	switch node := node.(type) {
	case object:
		_, refers := node["$ref"]
		_, composed := node["allOf"]
		_, members := node["properties"].(object)
		_, says := node["additionalProperties"]
		for name, child := range node {
			switch {
			case name == "example" || name == "examples" || name == "const" || name == "enum":
			case name == "schemas":
				for _, schema := range child.(object) {
					closeSchemas(schema, true) // the schema that refers to it checks the members
				}
			case name == "properties" && members:
				for _, schema := range child.(object) {
					closeSchemas(schema, false)
				}
			default:
				closeSchemas(child, name == "allOf")
			}
		}
		if ref, _ := node["$ref"].(string); (refers && strings.Contains(ref, "/schemas/") || composed || members) && !part && !says {
			node["unevaluatedProperties"] = false
		}
	case []any:
		for _, child := range node {
			closeSchemas(child, part)
		}
	}
}

// at returns the node at a JSON pointer and the pointer without references.
func (d *openAPI) at(t *testing.T, pointer string) (object, string) {
	t.Helper()
	var node any = d.root
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "#/"), "/") {
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		switch parent := node.(type) {
		case object:
			node = parent[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil {
				t.Fatal(err)
			}
			node = parent[i]
		}
	}
	found, ok := node.(object)
	if !ok {
		t.Fatalf("%s is %v, not an object", pointer, node)
	}
	if ref, is := found["$ref"].(string); is {
		return d.at(t, ref)
	}
	return found, pointer
}

// has reports whether the node at a pointer has a member.
func (d *openAPI) has(t *testing.T, pointer, member string) bool {
	t.Helper()
	node, _ := d.at(t, pointer)
	_, has := node[member]
	return has
}

func below(pointer, name string) string {
	return pointer + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}

// check validates a value by the schema at a pointer.
func (d *openAPI) check(t *testing.T, what, pointer string, value any) {
	t.Helper()
	schema, err := d.compiler.Compile("openapi.json" + escaped(pointer))
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if err := schema.Validate(value); err != nil {
		text, _ := json.Marshal(value)
		t.Errorf("%s: %v\n%s", what, err, text)
	}
}

// escaped returns a pointer as a fragment of a URL.
func escaped(pointer string) string {
	return strings.NewReplacer("{", "%7B", "}", "%7D", "*", "%2A").Replace(pointer)
}

// operations returns the pointers of all operations by their ids.
func (d *openAPI) operations() map[string]string {
	all := make(map[string]string)
	for _, list := range []string{"paths", "webhooks"} {
		for path, item := range d.root[list].(object) {
			for method, o := range item.(object) {
				if o, is := o.(object); is {
					all[o["operationId"].(string)] = below(below("#/"+list, path), method)
				}
			}
		}
	}
	return all
}

// examples returns the examples of a media type or a parameter, by name. A single example has an
// empty name.
func examples(of object) map[string]any {
	all := make(map[string]any)
	if single, is := of["example"]; is {
		all[""] = single
	}
	named, _ := of["examples"].(object)
	for name, example := range named {
		all[name] = example.(object)["value"]
	}
	return all
}

// asJSON returns a YAML document as JSON.
func asJSON(t *testing.T, document []byte) string {
	t.Helper()
	var node any
	if err := yaml.Unmarshal(document, &node); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(node)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
