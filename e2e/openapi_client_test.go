package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/mail/mailtest"
)

// exampleClient sends the documented examples to a gateway.
type exampleClient struct {
	*openAPI
	g     *gatetest.Gate
	mails *mailtest.Server
	ops   map[string]string // pointers by operation id
	sent  map[string]bool   // operation ids, with the names of examples

	// real has the ids and secrets of this gateway by those of the examples.
	real map[string]string

	key, cookie, ceremony string // headers with credentials
}

// exampleRequest describes how a documented example is sent and the expected status.
type exampleRequest struct {
	example string            // its name
	header  string            // lines of headers, such as a credential
	query   string            // more parameters
	path    map[string]string // parameters of the path that are not the documented ones
	body    string            // replaces the example
	form    string            // a multipart body with the boundary b
	status  int               // expected status; zero: 200
	invalid bool              // the request is wrong on purpose
}

// do sends an example, and validates request and answer. It returns the answer.
func (c *exampleClient) do(t *testing.T, id string, x exampleRequest) (answer gatetest.Answer, body object) {
	t.Helper()
	pointer, known := c.ops[id]
	if !known {
		t.Fatalf("the operation %s does not exist", id)
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
		if x.form != "" { // a form has no example: a recording cannot be written as text
			sent, header = x.form, header+"\nContent-Type: multipart/form-data; boundary=b"
		}
		if sent == "" {
			t.Fatalf("%s: the example does not exist", what)
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
		return name == media || name == "*/*" || strings.HasSuffix(name, "/*") && strings.HasPrefix(media, strings.TrimSuffix(name, "*"))
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
		switch cookie, _, _ := strings.Cut(line, ";"); {
		case strings.HasPrefix(cookie, "modelgate_session="):
			c.cookie = "Cookie: " + cookie
		case cookie != "":
			c.ceremony = "Cookie: " + cookie
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

var serviceSecret = strings.Repeat("QUFB", 12)

// signed adds a timestamp and a signature to the headers of a notice.
func (c *exampleClient) signed(header, body string) string {
	_, rest, _ := strings.Cut(header, "Webhook-Id: ")
	id, _, _ := strings.Cut(rest, "\n")
	secret := []byte(paymentSecret)
	if !strings.HasPrefix(id, "notice_") {
		secret, _ = base64.StdEncoding.DecodeString(serviceSecret)
	}
	now := time.Now().Unix()
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.%s", id, now, body)
	return fmt.Sprintf("%s\nWebhook-Timestamp: %d\nWebhook-Signature: v1,%s", header, now, base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}
