package wire

import "io"

// longest is how much of a string in an answer is read, in bytes of its JSON
// form. No longer string of an answer is used: an escape may take six bytes for
// one, and a string that is cut here is still too long for a link.
const longest = 6 * (maxLink + 1)

// brief reads JSON and cuts each string after longest bytes. Services repeat in
// their answers what they were sent, including prompts and pictures in Base64.
// If such an answer could not be read, the outcome of a running job would be
// unknown.
type brief struct {
	from io.Reader

	inside  bool // a string
	length  int  // of the string so far
	cutting bool // the rest of the string is left out
	escape  int  // what is still to come of an escape: its letter, or digits
}

// letter is the state in which the letter of an escape follows.
const letter = -1

// Read implements io.Reader.
func (b *brief) Read(p []byte) (int, error) {
	for {
		n, err := b.from.Read(p)
		if n = b.cut(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// cut moves what is read to the front of p and returns how much that is.
func (b *brief) cut(p []byte) int {
	read := p[:0]
	for _, c := range p {
		if b.takes(c) {
			read = append(read, c)
		}
	}
	return len(read)
}

// takes reports whether the next byte is kept. It never cuts an escape.
func (b *brief) takes(c byte) bool {
	if !b.inside {
		b.inside, b.length, b.cutting = c == '"', 0, false
		return true
	}
	if b.escape == 0 {
		if c == '"' {
			b.inside = false
			return true
		}
		b.cutting = b.length >= longest
	}
	b.length++
	switch {
	case b.escape > 0:
		b.escape--
	case b.escape == letter && c == 'u':
		b.escape = 4
	case b.escape == letter:
		b.escape = 0
	case c == '\\':
		b.escape = letter
	}
	return !b.cutting
}
