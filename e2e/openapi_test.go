package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/caddy-modelgate/modelgate/docs"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// object is a JSON object.
type object = map[string]any

// openAPI is the document that a gateway serves, with schemas in which every member that is not
// described is refused. The document itself leaves them open, for later versions.
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
		t.Fatalf("%s leads to %v", pointer, node)
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

// exampleClient sends the documented examples to a gateway.
type exampleClient struct {
	*openAPI
	g    *gatetest.Gate
	ops  map[string]string // pointers by operation id
	sent map[string]bool   // operation ids, with the names of examples

	// real has the ids and secrets of this gateway by those of the examples.
	real map[string]string

	key, cookie, ceremony string // headers with credentials
}

// exampleRequest is how a documented example is sent and answered.
type exampleRequest struct {
	example string            // its name
	header  string            // lines of headers, such as a credential
	query   string            // more parameters
	path    map[string]string // parameters of the path that are not the documented ones
	body    string            // replaces the example
	status  int               // expected status; zero: 200
	invalid bool              // the request is wrong on purpose
}

// do sends an example, and validates request and answer. It returns the answer.
func (c *exampleClient) do(t *testing.T, id string, x exampleRequest) (answer gatetest.Answer, body object) {
	t.Helper()
	pointer, known := c.ops[id]
	if !known {
		t.Fatalf("there is no operation %s", id)
	}
	what := strings.TrimSpace(id + " " + x.example)
	if !x.invalid {
		c.sent[what] = true
	}
	operation, _ := c.at(t, pointer)
	slash := strings.LastIndexByte(pointer, '/')
	method := strings.ToUpper(pointer[slash+1:])
	item := pointer[:slash]
	path := strings.NewReplacer("~1", "/", "~0", "~").Replace(item[strings.LastIndexByte(item, '/')+1:])
	header, query := x.header, url.Values{}

	parameters := func(owner string, of object) {
		list, _ := of["parameters"].([]any)
		for i := range list {
			p, at := c.at(t, below(below(owner, "parameters"), strconv.Itoa(i)))
			name, in := p["name"].(string), p["in"].(string)
			example, has := p["example"]
			if !has {
				if p["required"] == true {
					t.Errorf("%s: the parameter %s has no example", what, name)
				}
				continue
			}
			value := c.replaced(fmt.Sprint(example))
			switch in {
			case "path":
				if other, is := x.path[name]; is {
					value = other
				}
				path = strings.ReplaceAll(path, "{"+name+"}", value)
			case "query":
				query.Set(name, value)
			case "header":
				header += "\n" + name + ": " + value
			}
			c.check(t, what+" "+name, below(at, "schema"), example)
		}
	}
	shared, _ := c.at(t, item)
	parameters(item, shared)
	parameters(pointer, operation)

	sent := ""
	if _, has := operation["requestBody"]; has {
		request, at := c.at(t, below(pointer, "requestBody"))
		for media, content := range request["content"].(object) {
			for name, example := range examples(content.(object)) {
				if name != x.example {
					continue
				}
				header += "\nContent-Type: " + media
				if media == "application/x-www-form-urlencoded" {
					form := url.Values{}
					for name, value := range example.(object) {
						form.Set(name, fmt.Sprint(value))
					}
					sent = form.Encode()
					continue
				}
				text, err := json.Marshal(example)
				if err != nil {
					t.Fatal(err)
				}
				if sent = c.replaced(string(text)); x.body != "" {
					sent = x.body
				}
				value, err := jsonschema.UnmarshalJSON(strings.NewReader(sent))
				if err != nil {
					t.Fatal(err)
				}
				c.check(t, what+": request", below(below(below(at, "content"), media), "schema"), value)
			}
		}
		if sent == "" {
			t.Fatalf("%s: there is no such example", what)
		}
	}
	if strings.Contains(header, "Webhook-Id") {
		header = c.signed(header, sent)
	}
	if x.query != "" || len(query) > 0 {
		path += "?" + strings.Trim(query.Encode()+"&"+x.query, "&")
	}
	answer = c.g.Do(t, method, path, header, sent)

	want := x.status
	if want == 0 {
		want = http.StatusOK
	}
	if answer.Status != want {
		t.Errorf("%s: %s %s %s: %d %s, want %d", what, method, path, sent, answer.Status, answer.Body, want)
		return answer, nil
	}
	documented := below(below(pointer, "responses"), strconv.Itoa(want))
	if !c.has(t, below(pointer, "responses"), strconv.Itoa(want)) {
		if documented = below(below(pointer, "responses"), "default"); want < 400 {
			t.Fatalf("%s: the status %d is not documented", what, want)
		}
	}
	response, at := c.at(t, documented)
	contents, _ := response["content"].(object)
	media, _, err := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	if contents == nil {
		return answer, nil
	}
	found := slices.ContainsFunc(slices.Collect(maps.Keys(contents)), func(name string) bool {
		return name == media || strings.HasSuffix(name, "/*") && strings.HasPrefix(media, strings.TrimSuffix(name, "*"))
	})
	if err != nil || !found || answer.Body == "" {
		t.Fatalf("%s: the answer has the media type %q, which is not documented: %s", what, media, answer.Body)
	}
	if media != "application/json" {
		return answer, nil
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(answer.Body))
	if err != nil {
		t.Fatalf("%s: %v: %s", what, err, answer.Body)
	}
	c.check(t, what+": answer", below(below(below(at, "content"), media), "schema"), value)
	for line := range strings.SplitSeq(strings.Join(answer.Header.Values("Set-Cookie"), "\n"), "\n") {
		switch crumb, _, _ := strings.Cut(line, ";"); {
		case strings.HasPrefix(crumb, "modelgate_session="):
			c.cookie = "Cookie: " + crumb
		case crumb != "":
			c.ceremony = "Cookie: " + crumb
		}
	}
	body, _ = value.(object)
	return answer, body
}

// data sends an example to the console and returns the data of the answer.
func (c *exampleClient) data(t *testing.T, id string, x exampleRequest) object {
	t.Helper()
	_, body := c.do(t, id, x)
	data, _ := body["data"].(object)
	return data
}

// replaced returns a text with the documented ids replaced by those of this gateway.
func (c *exampleClient) replaced(text string) string {
	var pairs []string
	for _, example := range slices.SortedFunc(maps.Keys(c.real), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, example, c.real[example])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// The secrets of the services, in Base64.
const (
	paymentSecret = "a secret of the tests"
	epayKey       = "89unJUB8HZ54Hj7x4nUj56HN4nUzUJ8i"
)

var studioSecret = strings.Repeat("QUFB", 12)

// signed adds a timestamp and a signature to the headers of a notice.
func (c *exampleClient) signed(header, body string) string {
	_, rest, _ := strings.Cut(header, "Webhook-Id: ")
	id, _, _ := strings.Cut(rest, "\n")
	secret := []byte(paymentSecret)
	if !strings.HasPrefix(id, "notice_") {
		secret, _ = base64.StdEncoding.DecodeString(studioSecret)
	}
	now := time.Now().Unix()
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", id, now, body)
	return fmt.Sprintf("%s\nWebhook-Timestamp: %d\nWebhook-Signature: v1,%s", header, now, base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// asJSON returns what a gateway serves as JSON.
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
