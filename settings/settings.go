// Package settings reads the Caddyfile blocks of the app, of directives, and of
// payment services, task backends and engines. Placeholders are resolved once,
// when Caddy provisions the module.
//
// [Block] reads a block by the [Reader] of each word. [Words] and [Pairs]
// describe a block of words with one value each. [Secret] is a value that
// prints as REDACTED. [Resolve] replaces placeholders and [CheckURL] checks an
// address of a service. The package imports no other package of this
// module, so that third-party modules can use it.
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
// arguments, and a block. Each word appears at most once in the block and has
// one value that is not empty. Its errors name file and line, but not the
// value, which may be a secret.
func (words Words) Unmarshal(d *caddyfile.Dispenser) error {
	return words.UnmarshalWith(d, nil)
}

// UnmarshalWith is Unmarshal for a block that also has pairs.
func (words Words) UnmarshalWith(d *caddyfile.Dispenser, pairs Pairs) error {
	d.Next() // the module's name
	if name := d.Val(); d.NextArg() {
		return d.Errf("%s takes a block and no arguments", name)
	}
	readers := make(map[string]Reader, len(words)+len(pairs))
	for word, take := range words {
		readers[word] = func(d *caddyfile.Dispenser) error {
			var value string
			if !d.AllArgs(&value) || value == "" {
				return d.Errf("%s takes one value", word)
			}
			return Located(d, take(value))
		}
	}
	for word, take := range pairs {
		seen := make(map[string]bool)
		readers[word] = func(d *caddyfile.Dispenser) error {
			var name, value string
			if !d.AllArgs(&name, &value) || name == "" || value == "" {
				return d.Errf("%s takes a name and a value", word)
			}
			if seen[name] {
				return d.Errf("%s %q is given twice", word, name)
			}
			seen[name] = true
			return Located(d, take(name, value))
		}
	}
	return Block(d, readers, slices.Collect(maps.Keys(pairs))...)
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
		return fmt.Errorf("%s has a control character or a line break", word)
	}
	*value = T(text)
	return nil
}

// ResolveURL is [Resolve] for an address that must pass [CheckURL].
func ResolveURL(word string, address *string) error {
	if err := Resolve(word, address); err != nil {
		return err
	}
	if err := CheckURL(*address); err != nil {
		return fmt.Errorf("%s: %w", word, err)
	}
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
