package e2e

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caddy-modelgate/modelgate/docs"
)

// TestTheOpenAPIDocumentIsValid validates the document by the schema of OpenAPI 3.1, every schema in
// it by JSON Schema, and every example by its schema.
//
// testdata/openapi-3.1.json is https://spec.openapis.org/oas/3.1/schema/2022-10-07, which the
// OpenAPI Initiative publishes under the Apache License 2.0.
func TestTheOpenAPIDocumentIsValid(t *testing.T) {
	t.Parallel()
	text := asJSON(t, docs.OpenAPI)
	raw, err := os.ReadFile("testdata/openapi-3.1.json")
	if err != nil {
		t.Fatal(err)
	}
	official, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("https://spec.openapis.org/oas/3.1/schema/2022-10-07", official); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("https://spec.openapis.org/oas/3.1/schema/2022-10-07")
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(document); err != nil {
		t.Error(err)
	}

	d := newOpenAPI(t, text)
	checked := 0
	var visit func(pointer string, node any)
	visit = func(pointer string, node any) {
		switch node := node.(type) {
		case object:
			if _, is := node["schema"].(object); is {
				for name, example := range examples(node) {
					checked++
					d.check(t, pointer+" "+name, below(pointer, "schema"), example)
				}
			}
			if ref, is := node["$ref"].(string); is {
				d.at(t, ref)
			}
			for name, child := range node {
				if name != "example" && name != "examples" {
					visit(below(pointer, name), child)
				}
			}
		case []any:
			for i, child := range node {
				visit(below(pointer, strconv.Itoa(i)), child)
			}
		}
	}
	visit("#", d.root)
	if checked < 100 {
		t.Errorf("%d examples", checked)
	}
	for name := range d.root["components"].(object)["schemas"].(object) {
		if _, err := d.compiler.Compile("openapi.json#/components/schemas/" + name); err != nil {
			t.Error(err)
		}
	}
}
