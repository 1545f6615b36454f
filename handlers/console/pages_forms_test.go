package console_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// filled returns the fields that a browser sends for the form with an action's name, as the
// page has filled them. It also returns the path that the browser sends them to.
func filled(t testing.TB, page gatetest.Answer, action string) (fields url.Values, path string) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page.Body))
	if err != nil {
		t.Fatal(err)
	}
	for node := range root.Descendants() {
		if node.Data != "form" {
			continue
		}
		if fields := fieldsOf(node); fields.Get("do") == action {
			return fields, attribute(node, "action")
		}
	}
	t.Fatalf("%d has no form %q:\n%s", page.Status, action, page.Body)
	return nil, ""
}

func fieldsOf(form *html.Node) url.Values {
	fields := url.Values{}
	for node := range form.Descendants() {
		name := attribute(node, "name")
		switch {
		case node.Type != html.ElementNode || name == "" && node.Data != "option":
		case node.Data == "input":
			fields.Add(name, attribute(node, "value"))
		case node.Data == "textarea" && node.FirstChild != nil:
			fields.Add(name, node.FirstChild.Data)
		case node.Data == "textarea":
			fields.Add(name, "")
		case node.Data == "option" && slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == "selected" }):
			fields.Add(attribute(node.Parent, "name"), attribute(node, "value"))
		}
	}
	return fields
}

func attribute(node *html.Node, key string) string {
	for _, a := range node.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// fills opens a page, fills the form of an action and sends it.
func (b *browser) fills(t testing.TB, path, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	return b.completes(t, b.page(t, path), action, typed)
}

// completes fills a form of the page that is shown, and sends it.
func (b *browser) completes(t testing.TB, page gatetest.Answer, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	fields, path := filled(t, page, action)
	for name, value := range typed {
		if !fields.Has(name) {
			t.Fatalf("the form %s has no field %s, but %v", action, name, fields)
		}
		fields.Set(name, value)
	}
	return b.sends(t, path, fields)
}

// proves gives the code that a page asks for, and confirms the form that waited for it. The secrets
// of the form are typed again.
func (b *browser) proves(t testing.TB, page gatetest.Answer, action string, secrets map[string]string) gatetest.Answer {
	t.Helper()
	shows(t, page, 200, "Verify that it is you")
	wrong := b.completes(t, page, "verify", map[string]string{"code": "12345678"})
	shows(t, wrong, 400, `role="alert"`)
	confirm := b.completes(t, wrong, "verify", map[string]string{"code": b.digits(t)})
	shows(t, confirm, 200, "Nothing has been done yet")
	for _, shown := range []gatetest.Answer{page, wrong, confirm} {
		for name, secret := range secrets {
			if strings.Contains(shown.Body, secret) && !strings.Contains(secret, "code") {
				t.Errorf("a page repeats the %s of the form", name)
			}
		}
	}
	for name, secret := range secrets {
		if secret == "code" {
			secrets[name] = b.digits(t)
		}
	}
	return b.completes(t, confirm, action, secrets)
}

// digits returns a code of the authenticator app that was not used before.
func (b *browser) digits(t testing.TB) string { return strings.Trim(b.code(t), `"`) }

// self returns the account as the API has it.
func (b *browser) self(t testing.TB) (self struct {
	DisplayName string `json:"display_name"`
	Factors     struct {
		Enabled, TOTP bool
		Codes         int `json:"backup_codes"`
		Passkeys      int
	}
	Token *struct{ Hint string } `json:"access_token"`
},
) {
	t.Helper()
	into(t, b.does(t, "GET", "/api/user/self", ""), &self)
	return self
}

var newSecret = regexp.MustCompile(`<code id="secret">([^<]+)</code>`)

// secretOn returns the secret that a page shows once.
func secretOn(t testing.TB, page gatetest.Answer) string {
	t.Helper()
	found := newSecret.FindStringSubmatch(page.Body)
	if page.Status != 200 || found == nil {
		t.Fatalf("%d shows no secret:\n%s", page.Status, page.Body)
	}
	return html.UnescapeString(found[1])
}
