package usage

import (
	"bytes"
	"io"
)

// maxHeld is the maximum length of a usage chunk, in bytes.
const maxHeld = 64 << 10

// Trimmer writes a completions stream without the bytes that are only there because the
// gateway asked for usage (stream_options.include_usage) and the caller did not. These are
// the chunk that only contains usage (an empty array of choices and a usage object), and the
// member "usage":null of the other chunks. All other bytes pass unchanged.
//
// Complete events pass at once. Of an incomplete event at most 64 KiB are held. A longer one
// is not a usage chunk and passes as it comes. The member is only removed if its bytes are
// certain: not from a chunk with a second "usage":null, nor if a line ends within the member.
// An answer that is not a stream, or is compressed, passes unchanged.
type Trimmer struct {
	r        *Reader
	w        io.Writer
	held     []byte // the start of the current event
	overlong bool   // the current event is longer than maxHeld
	dropped  bool   // the event before it was removed
	err      error  // of w; nothing is written after it
}

// NewTrimmer returns a Trimmer that writes to w. It also writes to r, so that the bytes are
// parsed once, and the chunk that is removed is the one that r reads as usage.
func NewTrimmer(r *Reader, w io.Writer) *Trimmer {
	return &Trimmer{r: r, w: w}
}

// Write implements io.Writer. The Reader reads all of p even if w fails.
func (t *Trimmer) Write(p []byte) (int, error) {
	if t.r.decompressor == nil && !t.r.unreadable && !t.r.detect(p) {
		t.held = append(t.held, p...) // a few bytes, and blank lines before them
		if t.r.sniff.n == 0 {
			_ = t.Close()
		}
		return t.taken(p)
	}
	if !t.r.plainStream() {
		_ = t.Close()
		t.r.Write(p)
		t.pass(p)
		return t.taken(p)
	}
	e := &t.r.events
	from, start := 0, 0 // p[from:start] may pass, p[start:] is the current event
	for at := 0; at < len(p); {
		if e.afterCR && !e.inEvent && p[at] == '\n' { // belongs to the event before it
			e.next(p[at : at+1])
			at++
			if t.dropped {
				t.pass(p[from:start])
				from = at
			}
			start = at
			continue
		}
		n, end := e.next(p[at:])
		at += n
		if !end {
			break
		}
		whole := !t.overlong && len(t.held)+at-start <= maxHeld
		t.dropped = e.lastUsage && whole
		switch {
		case t.dropped:
			t.pass(p[from:start])
			from = at
		case e.lastNull && whole && len(t.held) > 0: // nothing of p has passed: start is 0
			t.held = append(t.held, p[:at]...)
			cut, end := nullUsage(t.held)
			t.pass(append(t.held[:cut], t.held[end:]...))
			from = at
		case e.lastNull && whole:
			if cut, end := nullUsage(p[start:at]); end > 0 {
				t.pass(p[from : start+cut])
				from = start + end
			}
		default:
			t.pass(t.held)
		}
		t.held, t.overlong, start = t.held[:0], false, at
	}

	rest := p[start:]
	if !t.overlong && len(t.held)+len(rest) <= maxHeld {
		t.pass(p[from:start])
		t.held = append(t.held, rest...)
		return t.taken(p)
	}
	t.pass(t.held)
	t.pass(p[from:])
	t.held, t.overlong = t.held[:0], len(rest) > 0 || t.overlong
	return t.taken(p)
}

// nullUsage returns the bounds of the one member "usage":null of an event, with the comma
// before or after it. It returns 0, 0 if there is none, or more than one. A quoted name with
// a colon after it is not part of a string, because quotes in strings are escaped.
func nullUsage(event []byte) (from, to int) {
	const name, value = `"usage"`, "null"
	for at := 0; ; {
		next := bytes.Index(event[at:], []byte(name))
		if next < 0 {
			return from, to
		}
		start := at + next
		at = start + len(name)
		end := at + blanks(event[at:])
		if end == len(event) || event[end] != ':' {
			continue
		}
		end++
		end += blanks(event[end:])
		if !bytes.HasPrefix(event[end:], []byte(value)) {
			continue
		}
		end += len(value)
		if to > 0 {
			return 0, 0
		}
		previous := bytes.TrimRight(event[:start], " \t")
		after := end + blanks(event[end:])
		switch {
		case len(previous) > 0 && previous[len(previous)-1] == ',':
			from, to = len(previous)-1, end
		case after < len(event) && event[after] == ',':
			from, to = start, after+1
		default:
			return 0, 0
		}
	}
}

// blanks returns the number of spaces and tabs at the beginning of p.
func blanks(p []byte) (n int) {
	for n < len(p) && (p[n] == ' ' || p[n] == '\t') {
		n++
	}
	return n
}

// Close writes the held bytes, if the stream ended within an event.
func (t *Trimmer) Close() error {
	t.pass(t.held)
	t.held = nil
	return t.err
}

func (t *Trimmer) pass(p []byte) {
	if len(p) > 0 && t.err == nil {
		_, t.err = t.w.Write(p)
	}
}

// taken returns what Write returns for p.
func (t *Trimmer) taken(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	return len(p), nil
}
