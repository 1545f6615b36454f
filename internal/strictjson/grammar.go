package strictjson

import (
	"fmt"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// MaxDepth is the maximum number of open brackets, including that of the body.
const MaxDepth = 64

// kindByFirstByte has the kind of a value by its first byte. A number is a Number until its
// end was read.
var kindByFirstByte = [256]Kind{
	'"': String, '{': Object, '[': Array, 't': Bool, 'f': Bool, 'n': Null,
	'-': Number, '0': Number, '1': Number, '2': Number, '3': Number, '4': Number,
	'5': Number, '6': Number, '7': Number, '8': Number, '9': Number,
}

// Each method below reads one element of the grammar of RFC 8259 that begins at body[i]. It
// returns the index after the element, or -1 and sets the fault if there is a syntax error.

// skip reads a value without a rule, within depth brackets. The open brackets of the value
// are a stack of bits, which fits into one word because of MaxDepth.
func (s *scanner) skip(i, depth int) int {
	var objects uint64 // the innermost open bracket lowest; 1 = object, 0 = array
	open := 0
	for {
		// A value begins here.
		switch kindByFirstByte[s.peek(i)] {
		case String:
			i, _ = s.string(i)
		case Number:
			i, _ = s.number(i)
		case Bool, Null:
			i = s.literal(i)
		case Object:
			if depth+open >= MaxDepth {
				return s.tooDeep(i)
			}
			if i = s.space(i + 1); s.peek(i) == '}' {
				i++
				break
			}
			objects, open = objects<<1|1, open+1
			if i = s.name(i); i < 0 {
				return i
			}
			continue
		case Array:
			if depth+open >= MaxDepth {
				return s.tooDeep(i)
			}
			if i = s.space(i + 1); s.peek(i) == ']' {
				i++
				break
			}
			objects, open = objects<<1, open+1
			continue
		default:
			return s.unexpected(i, "a value")
		}
		if i < 0 {
			return i
		}

		// A value ended, and perhaps brackets end after it.
		for {
			if open == 0 {
				return i
			}
			i = s.space(i)
			c := s.peek(i)
			if c == ',' {
				break
			}
			if objects&1 != 0 && c != '}' {
				return s.unexpected(i, "',' or '}'")
			}
			if objects&1 == 0 && c != ']' {
				return s.unexpected(i, "',' or ']'")
			}
			objects, open = objects>>1, open-1
			i++
		}
		i = s.space(i + 1)
		if objects&1 != 0 {
			if i = s.name(i); i < 0 {
				return i
			}
		}
	}
}

// name reads the name of a member and the colon.
func (s *scanner) name(i int) int {
	if s.peek(i) != '"' {
		return s.unexpected(i, "a name in quotes")
	}
	i, _ = s.string(i)
	if i < 0 {
		return i
	}
	return s.colon(i)
}

// colon reads the colon after a name and the white space around it.
func (s *scanner) colon(i int) int {
	i = s.space(i)
	if s.peek(i) != ':' {
		return s.unexpected(i, "':'")
	}
	return s.space(i + 1)
}

// string reads a string and reports whether it has escapes.
func (s *scanner) string(i int) (end int, escapes bool) {
	b := s.body
	for at := i + 1; ; {
		var high int
		if at, high = text(b, at); len(b)-at < stride {
			at, high = textTail(b, at, high)
		}
		// No character spans a quote or a backslash, so each part is checked separately.
		// Most parts are ASCII.
		if high < at && !validUTF8(b[high:at]) {
			return s.notUTF8(high), escapes
		}
		if at == len(b) {
			return s.unexpected(at, "the end of a string"), escapes
		}
		switch b[at] {
		case '"':
			return at + 1, escapes
		case '\\':
			escapes = true
			for at < len(b) && b[at] == '\\' { // often several follow each other
				size := escapeSize(b[at:])
				if size == 0 {
					return s.syntaxError(at, "a bad escape in a string"), escapes
				}
				at += size
			}
		default:
			return s.syntaxError(at, fmt.Sprintf("a bare control character U+%04X in a string", b[at])), escapes
		}
	}
}

// escapeSize returns the length of the escape at the beginning of b, or zero if there is
// none. It accepts any \uXXXX: halves of surrogate pairs only matter in a string that is
// used.
func escapeSize(b []byte) int {
	if len(b) >= 2 && shortEscapes[b[1]] {
		return 2
	}
	if len(b) >= 6 && b[1] == 'u' && hex[b[2]] != 0 && hex[b[3]] != 0 && hex[b[4]] != 0 && hex[b[5]] != 0 {
		return 6
	}
	return 0
}

// shortEscapes has the second bytes of the escapes of two bytes.
var shortEscapes = [256]bool{'"': true, '\\': true, '/': true, 'b': true, 'f': true, 'n': true, 'r': true, 't': true}

// number reads a number and returns whether it is written as an Integer.
func (s *scanner) number(i int) (end int, kind Kind) {
	kind = Integer
	if s.peek(i) == '-' {
		i++
	}
	if s.peek(i) == '0' {
		i++
	} else if i = s.digits(i); i < 0 {
		return i, kind
	}
	if s.peek(i) == '.' {
		kind = Number
		if i = s.digits(i + 1); i < 0 {
			return i, kind
		}
	}
	if c := s.peek(i); c == 'e' || c == 'E' {
		kind = Number
		i++
		if c := s.peek(i); c == '+' || c == '-' {
			i++
		}
		i = s.digits(i)
	}
	return i, kind
}

// digits reads one or more digits.
func (s *scanner) digits(i int) int {
	if c := s.peek(i); c < '0' || c > '9' {
		return s.unexpected(i, "a digit")
	}
	for c := s.peek(i); '0' <= c && c <= '9'; c = s.peek(i) {
		i++
	}
	return i
}

// literal reads true, false or null.
func (s *scanner) literal(i int) int {
	want := "null"
	switch s.body[i] {
	case 't':
		want = "true"
	case 'f':
		want = "false"
	}
	for n := range len(want) {
		if s.peek(i+n) != want[n] {
			return s.unexpected(i+n, want)
		}
	}
	return i + len(want)
}

// space reads white space, if there is any.
func (s *scanner) space(i int) int {
	for i < len(s.body) && s.body[i] <= ' ' {
		if c := s.body[i]; c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			break
		}
		i++
	}
	return i
}

// peek returns the byte at i, or zero after the end. Zero is a syntax error wherever peek is
// used.
func (s *scanner) peek(i int) byte {
	if i < len(s.body) {
		return s.body[i]
	}
	return 0
}

// syntaxError sets the fault for an error at body[i].
func (s *scanner) syntaxError(i int, reason string) int {
	s.fault = fault.New(fault.InvalidJSON, "invalid JSON at byte %d: %s", i, reason)
	return -1
}

// unexpected sets the fault: want was expected at body[i].
func (s *scanner) unexpected(i int, want string) int {
	if i >= len(s.body) {
		return s.syntaxError(i, "expected "+want+", found the end of the body")
	}
	r, size := utf8.DecodeRune(s.body[i:])
	if r == utf8.RuneError && size == 1 {
		return s.syntaxError(i, fmt.Sprintf("expected %s, found the byte 0x%02X", want, s.body[i]))
	}
	return s.syntaxError(i, fmt.Sprintf("expected %s, found %q", want, r))
}

func (s *scanner) tooDeep(i int) int {
	return s.syntaxError(i, fmt.Sprintf("nested deeper than %d levels", MaxDepth))
}

// notUTF8 sets the fault for the first byte at or after i that is not UTF-8.
func (s *scanner) notUTF8(i int) int {
	for {
		r, size := utf8.DecodeRune(s.body[i:])
		if r == utf8.RuneError && size <= 1 {
			return s.syntaxError(i, "a string is not valid UTF-8")
		}
		i += size
	}
}
