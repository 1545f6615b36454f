package strictjson

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Value is the position of a value in a body. Its methods need the same body. The zero Value
// is an absent one.
type Value struct {
	// Kind is the kind of the value; zero: it is absent.
	Kind Kind

	// Start and End bound its bytes in the body: body[Start:End].
	Start, End int

	// Len is the number of elements of an array or of members of an object, if the
	// table has rules for them or stores the value.
	Len int
}

// MaxNotes is the maximum number of notes of one body. No call needs as many.
const MaxNotes = 10_000

// Note is a member to which a rule with a Note applies, or an object without the member of a
// rule with an Absent.
type Note struct {
	Name   int // the Note or the Absent of the rule
	Object int // the offset of the object that has the member
	At     int // the offset of the member's name, or of the object without the member
	Index  int // the index in the outermost array; -1: not in an array
	Value
}

// Member returns the name of the member in body, unescaped.
func (n Note) Member(body []byte) string {
	s := scanner{body: body}
	end, _ := s.string(n.At)
	return Value{Kind: String, Start: n.At, End: end}.Text(body)
}

// PathOf returns the path of the value at the offset start. The grammar of body must have been
// checked. PathOf is slow: only use it for error texts.
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

// Raw returns the bytes of the value.
func (v Value) Raw(body []byte) []byte { return body[v.Start:v.End] }

// Text returns the unescaped text of a String. It is empty for any other kind.
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

// Int returns the value of an Integer. It returns false for any other kind, and for an integer
// outside of int64. A rule whose only kind is Integer refuses such an integer.
func (v Value) Int(body []byte) (int64, bool) {
	if v.Kind != Integer {
		return 0, false
	}
	return parseInteger(v.Raw(body))
}

// Bool reports whether the value is true. It returns false for any other kind.
func (v Value) Bool(body []byte) bool {
	return v.Kind == Bool && body[v.Start] == 't'
}

// parseInteger converts the digits of an Integer. It returns false outside of int64.
func parseInteger(digits []byte) (int64, bool) {
	n, err := strconv.ParseInt(string(digits), 10, 64)
	return n, err == nil
}

// fitsFloat reports whether a number is within the range of float64.
func fitsFloat(number []byte) bool {
	if len(number) <= 300 && !bytes.ContainsAny(number, "eE") {
		return true
	}
	_, err := strconv.ParseFloat(string(number), 64)
	return err == nil
}

// unescape appends the text of raw, which is the inside of a string whose grammar was checked,
// to dst. The text is never longer than raw. Half a surrogate pair becomes U+FFFD.
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

// hasOnlyPairs reports whether raw, the inside of a string whose grammar was checked, has no
// half of a surrogate pair.
func hasOnlyPairs(raw []byte) bool {
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

// escaped returns the character of the escape at the beginning of raw, and the length of the
// escape. Half of a surrogate pair without the other half is returned unchanged.
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
		r = codeUnit(raw)
		if utf16.IsSurrogate(r) && len(raw) >= 12 && raw[6] == '\\' && raw[7] == 'u' {
			if pair := utf16.DecodeRune(r, codeUnit(raw[6:])); pair != utf8.RuneError {
				return pair, 12
			}
		}
		return r, 6
	default: // a quote, slash or backslash
		return rune(raw[1]), 2
	}
}

// codeUnit returns the UTF-16 code unit of the escape \uXXXX at the beginning of raw.
func codeUnit(raw []byte) rune {
	var r rune
	for _, c := range raw[2:6] {
		r = r<<4 | rune(hex[c]-1)
	}
	return r
}

// hex has the value of each hexadecimal digit plus one, and zero for any other byte.
var hex = func() (table [256]uint8) {
	for n := range uint8(10) {
		table['0'+n] = n + 1
	}
	for n := range uint8(6) {
		table['a'+n], table['A'+n] = n+11, n+11
	}
	return table
}()
