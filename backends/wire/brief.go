package wire

import "io"

// longest is how much of a string in an answer is read, in bytes as they are
// written. Nothing of an answer is used that is longer: six bytes may stand for
// one, and what is cut here is still too long for a link.
const longest = 6 * (maxLink + 1)

// brief reads JSON and leaves out what is beyond the longest of each string.
// Services repeat in their answers what they were sent, prompts and pictures in
// Base64 among it, and an answer that could not be read for that would leave a
// job that runs in doubt.
type brief struct {
	from io.Reader

	inside  bool // a string
	length  int  // of the string so far
	cutting bool // the rest of the string is left out
	escape  int  // what is still to come of an escape: its letter, or digits
}

// letter says that the letter of an escape is still to come.
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

// takes tells whether the next byte is read. No escape is cut in two.
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
