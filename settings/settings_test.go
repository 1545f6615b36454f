package settings_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
	"github.com/caddy-modelgate/modelgate/settings"
)

// module has a word with any value, and one whose only value is "good".
type module struct {
	Key  settings.Secret `json:"key,omitempty"`
	Mode string          `json:"mode,omitempty"`
}

func (m *module) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{
		"key": settings.Text(&m.Key),
		"mode": func(value string) error {
			if value != "good" {
				return errors.New("mode: only good is allowed")
			}
			m.Mode = value
			return nil
		},
	}.Unmarshal(d)
}

func TestBlocksHaveWordsWithOneValue(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *module { return new(module) }, map[string]string{
		"name":                                  `{}`,
		"name {\n}":                             `{}`,
		"name {\nkey {env.KEY}\n}":              `{"key":"{env.KEY}"}`,
		"name {\nkey hush\nmode good\n}":        `{"key":"hush","mode":"good"}`,
		"name {\nmode bad\n}":                   ``,
		"name hush":                             ``,
		"name hush {\n}":                        ``,
		"name {\nkey\n}":                        ``,
		"name {\nkey \"\"\n}":                   ``,
		"name {\nkey hush hush\n}":              ``,
		"name {\nkey hush hush hush\n}":         ``,
		"name {\nkey hush\nkey hush\n}":         ``,
		"name {\nother hush\n}":                 ``,
		"name {\nkey hush {\nhush\n}\n}":        ``,
		"name {\nkey {\nhush\n}\n}":             ``,
		"name {\nmode good\nkey hush\nkey\n}\n": ``,
	})
}

// directory has a word and pairs.
type directory struct {
	Key   settings.Secret   `json:"key,omitempty"`
	Names map[string]string `json:"names,omitempty"`
}

func (m *directory) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	return settings.Words{"key": settings.Text(&m.Key)}.UnmarshalWith(d, settings.Pairs{
		"name": settings.Entries(&m.Names),
		"bad":  func(string, string) error { return errors.New("bad is not allowed") },
	})
}

func TestBlocksHavePairsOncePerName(t *testing.T) {
	t.Parallel()
	paymentstest.Caddyfiles(t, func() *directory { return new(directory) }, map[string]string{
		"d {\n}":                                `{}`,
		"d {\nname a 1\nkey hush\nname b 2\n}":  `{"key":"hush","names":{"a":"1","b":"2"}}`,
		"d {\nname a 1\nname a 2\n}":            ``,
		"d {\nname a\n}":                        ``,
		"d {\nname\n}":                          ``,
		"d {\nname a hush 2\n}":                 ``,
		"d {\nname \"\" hush\n}":                ``,
		"d {\nname a \"\"\n}":                   ``,
		"d {\nbad a hush\n}":                    ``,
		"d {\nnames a hush\n}":                  ``,
		"d {\nname a hush {\nx\n}\n}":           ``,
		"d {\nkey hush\nname a 1\nkey hush\n}":  ``,
		"d {\nname a hush\n}\nname b hush\n}\n": `{"names":{"a":"hush"}}`,
	})
}

func TestResolve(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write := func(name, text string) string {
		if err := os.WriteFile(file+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return "{file." + file + name + "}"
	}
	t.Setenv("SETTING", "from the environment")
	t.Setenv("BRACED", "{env.SETTING}")
	t.Setenv("BLANK", " \n")
	t.Setenv("EMPTY", "")

	for text, want := range map[string]string{
		"plain text":                 "plain text",
		"{env.SETTING}":              "from the environment",
		"{env.BRACED}":               "{env.SETTING}",
		write("", "from a file\n"):   "from a file",
		write("-crlf", "a file\r\n"): "a file",
		"":                           "key is missing",
		"{env.EMPTY}":                "key: ",
		"{env.BLANK}":                "key is empty",
		"{no.such.placeholder}":      "key: ",
		"{file./no/such/file}":       "key: ",
		write("-empty", ""):          "key: ",
		write("-lines", "one\ntwo"):  "key has a control character",
	} {
		value := settings.Secret(text)
		if err := settings.Resolve("key", &value); err != nil {
			if !strings.HasPrefix(want, "key") || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		} else if value.Reveal() != want {
			t.Errorf("%q is resolved to %q, want %q", text, value.Reveal(), want)
		}
	}
}

func TestSecretsDoNotPrint(t *testing.T) {
	t.Parallel()
	m := module{Key: "hush"}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		if text := fmt.Sprintf(format, m); strings.Contains(text, "hush") || strings.Contains(text, "68757368") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

func TestCheckURL(t *testing.T) {
	t.Parallel()
	for address, good := range map[string]bool{
		"https://pay.example.com":       true,
		"http://127.0.0.1:8080/below/":  true,
		"pay.example.com":               false,
		"/below":                        false,
		"ftp://pay.example.com":         false,
		"https:///below":                false,
		"https://me:it@pay.example.com": false,
		"https://pay.example.com?a=b":   false,
		"https://pay.example.com?":      false,
		"https://pay.example.com#a":     false,
		"https://pay.example.com/%zz":   false,
	} {
		if err := settings.CheckURL(address); (err == nil) != good {
			t.Errorf("%s: %v", address, err)
		}
	}
}
