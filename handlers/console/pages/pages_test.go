package pages

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheLanguagesHaveEqualMessages compares the keys of the two languages, and their arguments.
func TestTheLanguagesHaveEqualMessages(t *testing.T) {
	t.Parallel()
	verb := regexp.MustCompile(`%(\[\d\])?[a-z]`)
	english, chinese := messagesOf(t, "en"), messagesOf(t, "zh")
	for _, key := range slices.Sorted(maps.Keys(english)) {
		if chinese[key] == "" {
			t.Errorf("%s is missing in Chinese", key)
		}
		if a, b := verb.FindAllString(english[key], -1), verb.FindAllString(chinese[key], -1); len(a) != len(b) {
			t.Errorf("%s has the arguments %q and %q", key, a, b)
		}
		delete(chinese, key)
	}
	if len(chinese) > 0 {
		t.Errorf("missing in English: %q", slices.Sorted(maps.Keys(chinese)))
	}
}

// messagesOf returns all messages of a language. No two areas have the same key.
func messagesOf(t *testing.T, language string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	areas, err := fs.Glob(files, path.Join("messages", language, "*.json"))
	if err != nil || len(areas) == 0 {
		t.Fatal(areas, err)
	}
	for _, area := range areas {
		raw, err := fs.ReadFile(files, area)
		var messages map[string]string
		if err == nil {
			err = json.Unmarshal(raw, &messages)
		}
		if err != nil {
			t.Fatal(area, err)
		}
		for key, message := range messages {
			if all[key] != "" {
				t.Errorf("%s: %s is in another area, too", area, key)
			}
			all[key] = message
		}
	}
	return all
}

// TestEveryMessageInATemplateExists looks for the keys that templates name as they are.
func TestEveryMessageInATemplateExists(t *testing.T) {
	t.Parallel()
	messages := messagesOf(t, "en")
	templates, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\(?\bt "([a-z_.]+)"`)
	for _, file := range templates {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range named.FindAllSubmatch(text, -1) {
			if messages[string(found[1])] == "" {
				t.Errorf("%s: there is no message %s", file, found[1])
			}
		}
	}
	for _, p := range table {
		for name, a := range p.actions {
			if messages["do."+name] == "" && p.name != "preferences" && p.name != "verify" {
				t.Errorf("the action %s of the page %s has no message do.%s", name, p.name, name)
			}
			if found := regexp.MustCompile(`done=([a-z_]+)`).FindStringSubmatch(a.then); found != nil && messages["done."+found[1]] == "" {
				t.Errorf("the action %s has no message done.%s", name, found[1])
			}
		}
		if messages["title."+p.name] == "" {
			t.Errorf("the page %s has no title", p.name)
		}
	}
}

// TestEveryTemplateIsDefinedOnce looks for templates of two areas that have the same name: the later
// one would replace the other.
func TestEveryTemplateIsDefinedOnce(t *testing.T) {
	t.Parallel()
	areas, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		t.Fatal(err)
	}
	definition := regexp.MustCompile(`{{-? *define "([^"]+)"`)
	first := make(map[string]string)
	for _, area := range areas {
		text, err := fs.ReadFile(files, area)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range definition.FindAllSubmatch(text, -1) {
			name := string(found[1])
			if first[name] != "" {
				t.Errorf("%q is defined in %s and in %s", name, first[name], area)
			}
			first[name] = area
		}
	}
}

// TestTheSupportHandbookHasTheWordsOfThePages compares the table of codes and words with the
// messages.
func TestTheSupportHandbookHasTheWordsOfThePages(t *testing.T) {
	handbook, err := os.ReadFile("../../../docs/guide/support.md")
	if err != nil {
		t.Fatal(err)
	}
	en, zh := messagesOf(t, "en"), messagesOf(t, "zh")
	for _, of := range []struct{ prefix, of string }{
		{"kind.", "a line of the ledger"}, {"call.short.", "a call"}, {"admin.notice.", "a notice"},
	} {
		for key, word := range en {
			code, ok := strings.CutPrefix(key, of.prefix)
			if row := fmt.Sprintf("| %s | `%s` | %s | %s |\n", of.of, code, word, zh[key]); ok && code != "" && !strings.Contains(string(handbook), row) {
				t.Errorf("the handbook lacks %q", row)
			}
		}
	}
	for _, status := range []string{"pending", "paid", "failed", "expired", "refunded", "disputed", "review"} {
		if row := fmt.Sprintf("| an order | `%s` | %s | %s |\n", status, en["order."+status], zh["order."+status]); !strings.Contains(string(handbook), row) {
			t.Errorf("the handbook lacks %q", row)
		}
	}
}
