package strictjson

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// hash returns the hash of a name, by which a table finds its rules.
func hash(name []byte) uint8 {
	n := len(name)
	return uint8(n) + 7*name[0] + 31*name[n/2] + 13*name[n-1]
}

// Kinds returns the kinds that the rule for name allows. They are zero if there is no rule, or if it
// allows any.
func (t *Table) Kinds(name string) Kind {
	r := t.find([]byte(name))
	if r == nil {
		return 0
	}
	return r.Kinds
}

// find returns the rule for a member, or nil if there is none. Name is as written in the
// body, without quotes.
func (t *Table) find(name []byte) *rule {
	if len(name) == 0 || len(name) > maxName {
		return nil
	}
	h := hash(name)
	for ; t != nil; t = t.common {
		for n := t.first[h]; n != 0; n = t.next[n] {
			if r := &t.rules[n-1]; string(name) == r.Name {
				return r
			}
		}
	}
	return nil
}

// caseVariant returns the Deciding rule that a parser which ignores case would apply to name,
// or nil if there is none. Like encoding/json, it treats U+017F as s and U+212A as k.
func (t *Table) caseVariant(name []byte) *rule {
	if t.deciding == 0 || len(name) > 3*maxName || t.lowerCase && !foldable(name) {
		return nil
	}
	for n := range t.rules {
		if r := &t.rules[n]; r.Deciding && bytes.EqualFold(name, []byte(r.Name)) {
			return r
		}
	}
	return nil
}

// foldable reports whether name has a byte that case folding may change: a capital letter, or
// part of a character outside of ASCII. Two different names without such a byte are not case
// variants.
func foldable(name []byte) bool {
	for _, c := range name {
		if c >= utf8.RuneSelf || 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return false
}

// addSpelling adds r to the rules that apply to any spelling of their names.
func (t *Table) addSpelling(r *rule) error {
	var buffer [maxName]byte
	key := string(folded(buffer[:0], []byte(r.Name)))
	if t.spellings[key] != nil || key == "" {
		return fmt.Errorf("rule %q: another rule has a spelling of this name, or the name has no letters", r.Name)
	}
	if t.spellings == nil {
		t.spellings = make(map[string]*rule)
	}
	t.spellings[key] = r
	return nil
}

// spelling returns the rule with AnySpelling that applies to name, or nil if there is none.
func (t *Table) spelling(name []byte) *rule {
	if len(name) > 3*maxName {
		return nil
	}
	var buffer [maxName]byte
	var key []byte
	for ; t != nil; t = t.common {
		if t.spellings == nil {
			continue
		}
		if key == nil {
			key = folded(buffer[:0], name)
		}
		if r := t.spellings[string(key)]; r != nil {
			return r
		}
	}
	return nil
}

// Fold returns the form in which names with AnySpelling are compared: text in lower case, without
// underscores and hyphens. The result has at most 64 bytes.
func Fold(text string) string {
	var buffer [maxName]byte
	return string(folded(buffer[:0], []byte(text)))
}

// folded appends name to dst in lower case, without underscores and hyphens, up to the capacity
// of dst. Like caseVariant, it treats U+017F as s and U+212A as k. Names in tables have no
// other character outside of ASCII.
func folded(dst, name []byte) []byte {
	for len(name) > 0 && len(dst) < cap(dst) {
		c := name[0]
		switch {
		case c == '_' || c == '-':
		case 'A' <= c && c <= 'Z':
			dst = append(dst, c|0x20)
		case bytes.HasPrefix(name, []byte("\u017f")):
			dst = append(dst, 's')
			name = name[1:]
		case bytes.HasPrefix(name, []byte("\u212a")):
			dst = append(dst, 'k')
			name = name[2:]
		default:
			dst = append(dst, c)
		}
		name = name[1:]
	}
	return dst
}
