package strictjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is where in a body a value stands. It refers to the body that was
// scanned, which every method takes again. The zero Value is an absent one.
type Value struct {
	// Kind is the one kind of the value; zero when it is absent.
	Kind Kind

	// Start and End bound its bytes in the body: body[Start:End].
	Start, End int

	// Len counts the elements of an array or the members of an object, where
	// the table has rules for them or records the value.
	Len int
}

// MaxNotes bounds the notes of one body. It is far above what any call needs.
const MaxNotes = 10_000

// Note is a member that a rule with a Note has met, or an object without one that
// a rule with an Absent wants.
type Note struct {
	Name   int // that of the rule
	Object int // where the object begins that holds the member
	At     int // where the name of the member begins, or the object without it
	Index  int // the element of the outermost array that it is in; -1: in none
	Value
}

// Member is the name of the member as it stands in body, unescaped.
func (n Note) Member(body []byte) string {
	s := scanner{body: body}
	end, _ := s.string(n.At)
	return Value{Kind: String, Start: n.At, End: end}.Text(body)
}

// PathOf returns the path of the value that begins at the offset start of a body
// whose grammar was checked. It reads the body up to there: it is for refusals.
func PathOf(body []byte, start int) string {
	dec := decoder(body)
	for {
		if _, err := dec.ReadToken(); err != nil {
			return ""
		}
		if dec.InputOffset() > int64(start) {
			return locate(body, dec.StackPointer())
		}
	}
}

// Raw is the value as it stands in body.
func (v Value) Raw(body []byte) []byte { return body[v.Start:v.End] }

// Text is the text of a String, unescaped; empty for every other kind.
func (v Value) Text(body []byte) string {
	if v.Kind != String {
		return ""
	}
	raw := body[v.Start+1 : v.End-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	return string(unescape(make([]byte, 0, len(raw)), raw))
}

// Int is the value of an Integer. It is false for every other kind, and for an
// integer outside of int64, which a rule for an Integer does not let pass.
func (v Value) Int(body []byte) (int64, bool) {
	if v.Kind != Integer {
		return 0, false
	}
	return integer(v.Raw(body))
}

// Bool tells whether the value is true. It is false for every other kind.
func (v Value) Bool(body []byte) bool {
	return v.Kind == Bool && body[v.Start] == 't'
}

// integer converts the digits of an Integer; false when int64 does not hold it.
func integer(digits []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}

// finite tells whether float64 holds the number, if not to its last digit.
func finite(number []byte) bool {
	if len(number) <= 300 && !bytes.ContainsAny(number, "eE") {
		return true
	}
	_, err := strconv.ParseFloat(string(number), 64)
	return err == nil
}

// unescape appends the text of raw to dst: the inside of a string whose
// grammar was checked. It is never longer than raw. Half a surrogate pair
// becomes U+FFFD.
func unescape(dst, raw []byte) []byte {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return append(dst, raw...)
		}
		r, size := escaped(raw[n:])
		dst = utf8.AppendRune(append(dst, raw[:n]...), r)
		raw = raw[n+size:]
	}
}

// whole tells whether raw, the inside of a string whose grammar was checked,
// is free of halves of surrogate pairs.
func whole(raw []byte) bool {
	for {
		n := bytes.IndexByte(raw, '\\')
		if n < 0 {
			return true
		}
		r, size := escaped(raw[n:])
		if utf16.IsSurrogate(r) {
			return false
		}
		raw = raw[n+size:]
	}
}

// escaped is the character for the escape that raw begins with, and the length
// of the escape. A half of a surrogate pair without the other is returned as
// that half.
func escaped(raw []byte) (r rune, size int) {
	switch raw[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r = unit(raw)
		if utf16.IsSurrogate(r) && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, unit(raw[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return r, 6
	default: // quote, slash and backslash stand for themselves
		return rune(raw[1]), 2
	}
}

// unit is the UTF-16 code unit of the escape \uXXXX that raw begins with.
func unit(raw []byte) rune {
	var r rune
	for _, c := range raw[2:6] {
		r = r<<4 | rune(hex[c]-1)
	}
	return r
}

// hex holds for every hexadecimal digit its value plus one, for every other
// byte zero.
var hex = func() (table [256]uint8) {
	for n := range uint8(10) {
		table['0'+n] = n + 1
	}
	for n := range uint8(6) {
		table['a'+n], table['A'+n] = n+11, n+11
	}
	return table
}()
