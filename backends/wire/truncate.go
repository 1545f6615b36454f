package wire

import "io"

// maxString is the maximum length of a string in an answer, in bytes of its JSON
// form; the rest is cut. No adapter uses a longer string. An escape has up to six
// bytes for one byte, so a string that was cut is still too long for a URL.
const maxString = 6 * (maxLink + 1)

// truncatingReader reads JSON and cuts each string after maxString bytes. Some
// services repeat the request in their answers, including prompts and images in
// Base64. If the client rejected such an answer, the outcome of the job would be
// unknown.
type truncatingReader struct {
	from io.Reader

	inString bool // between the quotes of a string
	length   int  // bytes of that string so far
	cutting  bool // the rest of the string is dropped
	escape   int  // bytes that the current escape still needs: [escapeLetter] or a number of hexadecimal digits
}

// escapeLetter means that a backslash was read and the letter of the escape
// follows.
const escapeLetter = -1

// Read implements io.Reader.
func (b *truncatingReader) Read(p []byte) (int, error) {
	for {
		n, err := b.from.Read(p)
		if n = b.filter(p[:n]); n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
	}
}

// filter moves the bytes that are kept to the front of p and returns their
// number.
func (b *truncatingReader) filter(p []byte) int {
	read := p[:0]
	for _, c := range p {
		if b.keep(c) {
			read = append(read, c)
		}
	}
	return len(read)
}

// keep reports whether the next byte is kept. It never cuts inside an escape.
func (b *truncatingReader) keep(c byte) bool {
	if !b.inString {
		b.inString, b.length, b.cutting = c == '"', 0, false
		return true
	}
	if b.escape == 0 {
		if c == '"' {
			b.inString = false
			return true
		}
		b.cutting = b.length >= maxString
	}
	b.length++
	switch {
	case b.escape > 0:
		b.escape--
	case b.escape == escapeLetter && c == 'u':
		b.escape = 4
	case b.escape == escapeLetter:
		b.escape = 0
	case c == '\\':
		b.escape = escapeLetter
	}
	return !b.cutting
}
