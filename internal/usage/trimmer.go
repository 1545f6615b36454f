package usage

import (
	"bytes"
	"io"
)

// maxHeld is the longest event, in bytes, that may be a usage chunk.
const maxHeld = 64 << 10

// Trimmer passes a completions stream on without what is there only because the
// gateway asked for usage (stream_options.include_usage) where the client did not:
// the chunk that only brings usage, an empty array of choices beside a usage
// object, and the member "usage":null of the other chunks. All other bytes pass
// unchanged.
//
// Whole events pass at once. Of an event that has not ended at most 64 KiB are
// held; a longer one is no usage chunk and passes as it comes. The member stays
// where it is not beyond doubt which bytes it is: in a chunk that has another
// "usage":null inside, or breaks its line within the member. An answer that
// is no stream, or is compressed, passes as it is.
type Trimmer struct {
	r       *Reader
	w       io.Writer
	held    []byte // the event in progress, as far as it came
	long    bool   // the event in progress has outgrown held
	dropped bool   // the event before it was taken out
	err     error  // of w; nothing is written after it
}

// NewTrimmer returns a Trimmer that passes on to w. It feeds r by itself: the
// bytes are read once, and what r takes for usage is what is taken out.
func NewTrimmer(r *Reader, w io.Writer) *Trimmer {
	return &Trimmer{r: r, w: w}
}

// Write implements io.Writer. The reader is fed all of p even when w fails.
func (t *Trimmer) Write(p []byte) (int, error) {
	if t.r.packed == nil && !t.r.blind && !t.r.knows(p) {
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
	from, start := 0, 0 // p[from:start] may pass, p[start:] is in progress
	for at := 0; at < len(p); {
		if e.afterCR && !e.inEvent && p[at] == '\n' { // goes the way of its event
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
		whole := !t.long && len(t.held)+at-start <= maxHeld
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
		t.held, t.long, start = t.held[:0], false, at
	}

	rest := p[start:]
	if !t.long && len(t.held)+len(rest) <= maxHeld {
		t.pass(p[from:start])
		t.held = append(t.held, rest...)
		return t.taken(p)
	}
	t.pass(t.held)
	t.pass(p[from:])
	t.held, t.long = t.held[:0], len(rest) > 0 || t.long
	return t.taken(p)
}

// nullUsage returns where the one member "usage":null stands in an event, together
// with a comma beside it; 0, 0 where there is none, or more than one. A name in
// quotes with a colon after it stands in no string: there the quotes are escaped.
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
		before := bytes.TrimRight(event[:start], " \t")
		after := end + blanks(event[end:])
		switch {
		case len(before) > 0 && before[len(before)-1] == ',':
			from, to = len(before)-1, end
		case after < len(event) && event[after] == ',':
			from, to = start, after+1
		default:
			return 0, 0
		}
	}
}

// blanks returns how many spaces and tabs p begins with.
func blanks(p []byte) (n int) {
	for n < len(p) && (p[n] == ' ' || p[n] == '\t') {
		n++
	}
	return n
}

// Close passes on what is held when the stream ends inside an event.
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

// taken is what Write returns after p.
func (t *Trimmer) taken(p []byte) (int, error) {
	if t.err != nil {
		return 0, t.err
	}
	return len(p), nil
}
