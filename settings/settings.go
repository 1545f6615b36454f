// Package settings reads the configuration that payment services and task
// backends have in common: a Caddyfile block of words with one value each, and
// values with placeholders, which are resolved once, when Caddy provisions the
// module.
//
// [Words] and [Pairs] describe a block and read it. [Secret] is a value that
// prints as REDACTED. [Resolve] replaces placeholders and [CheckURL] checks an
// address of a service. The package imports Caddy and nothing else of this
// module, so that modules of third parties can use it.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Words maps the words of a block to the functions that take their values.
type Words map[string]func(value string) error

// Text returns a function that stores a value unchanged.
func Text[T ~string](into *T) func(string) error {
	return func(value string) error {
		*into = T(value)
		return nil
	}
}

// Pairs maps words that take a name and a value. Each name may appear once.
type Pairs map[string]func(name, value string) error

// Entries returns a function that adds pairs to a map.
func Entries(into *map[string]string) func(name, value string) error {
	return func(name, value string) error {
		if *into == nil {
			*into = make(map[string]string)
		}
		(*into)[name] = value
		return nil
	}
}

// Unmarshal reads a module's segment of a Caddyfile: its name, without
// arguments, and a block in which each word appears at most once and has one
// value that is not empty. Its errors name file and line, but not the value,
// which may be a secret.
func (words Words) Unmarshal(d *caddyfile.Dispenser) error {
	return words.UnmarshalWith(d, nil)
}

// UnmarshalWith is Unmarshal for a block that also has pairs.
func (words Words) UnmarshalWith(d *caddyfile.Dispenser, pairs Pairs) error {
	d.Next() // the module's name
	name := d.Val()
	if d.NextArg() {
		return d.Errf("%s takes a block and no arguments", name)
	}
	seen := make(map[string]bool)
	for d.NextBlock(0) {
		word := d.Val()
		if take, known := pairs[word]; known {
			if err := takePair(d, word, take, seen); err != nil {
				return err
			}
			continue
		}
		take, known := words[word]
		if !known {
			there := slices.AppendSeq(slices.Sorted(maps.Keys(words)), maps.Keys(pairs))
			slices.Sort(there)
			return d.Errf("unknown word %q in %s; there are %s", word, name, strings.Join(there, ", "))
		}
		if seen[word] {
			return d.Errf("%q is there twice", word)
		}
		seen[word] = true

		var value string
		if !d.AllArgs(&value) {
			return d.Errf("%s takes one value", word)
		}
		if value == "" {
			return d.Errf("%s is empty", word)
		}
		if err := take(value); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

func takePair(d *caddyfile.Dispenser, word string, take func(name, value string) error, seen map[string]bool) error {
	var name, value string
	if !d.AllArgs(&name, &value) || name == "" || value == "" {
		return d.Errf("%s takes a name and a value", word)
	}
	if seen[word+" "+name] {
		return d.Errf("%s %q is there twice", word, name)
	}
	seen[word+" "+name] = true
	if err := take(name, value); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// Secret is a value that signs or decrypts something. It prints as REDACTED;
// only Reveal returns its text. JSON contains the text, because configuration
// is JSON.
type Secret string

// String implements fmt.Stringer.
func (Secret) String() string { return "REDACTED" }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return "REDACTED" }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }

// Resolve replaces the placeholders in a value, such as `{env.X}` and
// `{file./path}`, and trims white space. It returns an error for an unknown or
// empty placeholder, an empty result and control characters. word names the
// value in the error.
func Resolve[T ~string](word string, value *T) error {
	if *value == "" {
		return fmt.Errorf("%s is missing", word)
	}
	text, err := caddy.NewReplacer().ReplaceOrErr(string(*value), true, true)
	if err != nil {
		return fmt.Errorf("%s: %w", word, err)
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return fmt.Errorf("%s is empty", word)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return fmt.Errorf("%s holds a control character or a line break", word)
	}
	*value = T(text)
	return nil
}

// CheckURL returns an error unless address is an absolute http or https URL
// without credentials, query and fragment.
func CheckURL(address string) error {
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return errors.New("it cannot be read as a URL")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return fmt.Errorf("%q is not an absolute http or https URL", u.Redacted())
	case u.User != nil, u.RawQuery != "" || u.ForceQuery, u.Fragment != "":
		return fmt.Errorf("%q has credentials, a query or a fragment", u.Redacted())
	}
	return nil
}
