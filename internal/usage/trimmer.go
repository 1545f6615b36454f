package usage

import (
	"bytes"
	"io"
)

// maxBuffered is the maximum length of a usage chunk, in bytes.
const maxBuffered = 64 << 10

// Trimmer writes a completions stream without the bytes that the backend only sends because
// the gateway, and not the caller, asked for usage (stream_options.include_usage). These are
// the chunk that only contains usage (an empty array of choices and a usage object), and the
// member "usage":null of the other chunks. All other bytes pass unchanged.
//
// A complete event is written at once. Of an incomplete event at most 64 KiB are buffered. A
// longer one is not a usage chunk, and its bytes are written as they arrive. The member is
// only removed if it is certain which bytes it has. It is not removed from a chunk with a
// second "usage":null, nor if a line ends within the member. An answer that is not a stream,
// or is compressed, is written unchanged.
type Trimmer struct {
	r        *Reader
	w        io.Writer
	buffer   []byte // the start of the current event
	overlong bool   // the current event is longer than maxBuffered
	dropped  bool   // the previous event was removed
	err      error  // the error of w, after which nothing is written
}

// NewTrimmer returns a Trimmer that writes to w. It also writes to r, so that the bytes are
// parsed once, and the chunk that is removed is the one that r reads as usage.
func NewTrimmer(r *Reader, w io.Writer) *Trimmer {
	return &Trimmer{r: r, w: w}
}

// Write implements io.Writer. The Reader reads all of p even if w fails.
func (t *Trimmer) Write(p []byte) (int, error) {
	if t.r.decompressor == nil && !t.r.unreadable && !t.r.detect(p) {
		t.buffer = append(t.buffer, p...) // a few bytes, and the blank lines before them
		if t.r.sniff.n == 0 {
			_ = t.Close()
		}
		return t.written(p)
	}
	if !t.r.plainStream() {
		_ = t.Close()
		t.r.Write(p)
		t.pass(p)
		return t.written(p)
	}
	e := &t.r.events
	from, start := 0, 0 // p[from:start] may be written, p[start:] is the current event
	for at := 0; at < len(p); {
		if e.afterCR && !e.inEvent && p[at] == '\n' { // the LF belongs to the previous event
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
		buffered := !t.overlong && len(t.buffer)+at-start <= maxBuffered
		t.dropped = e.lastUsage && buffered
		switch {
		case t.dropped:
			t.pass(p[from:start])
			from = at
		case e.lastNull && buffered && len(t.buffer) > 0: // no part of p was written: start is 0
			t.buffer = append(t.buffer, p[:at]...)
			begin, end := nullUsage(t.buffer)
			t.pass(append(t.buffer[:begin], t.buffer[end:]...))
			from = at
		case e.lastNull && buffered:
			if begin, end := nullUsage(p[start:at]); end > 0 {
				t.pass(p[from : start+begin])
				from = start + end
			}
		default:
			t.pass(t.buffer)
		}
		t.buffer, t.overlong, start = t.buffer[:0], false, at
	}

	rest := p[start:]
	if !t.overlong && len(t.buffer)+len(rest) <= maxBuffered {
		t.pass(p[from:start])
		t.buffer = append(t.buffer, rest...)
		return t.written(p)
	}
	t.pass(t.buffer)
	t.pass(p[from:])
	t.buffer, t.overlong = t.buffer[:0], len(rest) > 0 || t.overlong
	return t.written(p)
}

// nullUsage returns the bounds of the only member "usage":null of an event, with the comma
// before or after it. It returns 0, 0 if there is none, or more than one. A quoted name
// followed by a colon is not part of a string, because quotes in strings are escaped.
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

// Close writes the buffered bytes, if the stream ended within an event.
func (t *Trimmer) Close() error {
	t.pass(t.buffer)
	t.buffer = nil
	return t.err
}

// pass writes p, unless a write has failed.
func (t *Trimmer) pass(p []byte) {
	if len(p) > 0 && t.err == nil {
		_, t.err = t.w.Write(p)
	}
}

// written returns the results of Write for p.
func (t *Trimmer) written(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	return len(p), nil
}
