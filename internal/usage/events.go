package usage

import "bytes"

// events follows an event stream as the HTML standard defines it (section
// "Server-sent events"): lines end with LF, CR or CRLF, a byte order mark may
// come first, several data lines make one text. Nothing waits for the end of
// its event: a field counts as soon as it has passed.
type events struct {
	document

	mark    uint8 // bytes of the byte order mark seen; 3 also when there is none
	afterCR bool  // a line ended with CR: an LF next belongs to it
	inEvent bool  // a line came since the last blank one
	hasData bool  // a data line did
	field   field
	space   bool  // the value's first byte is next; one space there is none of it
	name    token // the field's name, then the event's
	length  int   // bytes of the line so far
	matched uint8 // bytes of the event's data that match doneMark; more: none will

	done      bool // doneMark came
	tooLong   bool // a line was longer than MaxLine
	lastUsage bool // the event that ended last only brought usage
	lastNull  bool // the event that ended last may have "usage":null at its top
}

// field is what the line being read is.
type field uint8

const (
	unnamed   field = iota // its name is being read
	dataField              // the data of the event
	nameField              // the name of the event
	ignored                // a comment, or a field of no interest
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	doneMark      = "[DONE]"

	// searched bounds one search for a line's end, so that a stream of short
	// lines in a large portion is not searched to its end for each.
	searched = 512
)

// next follows p up to the end of an event, and returns how much of p that was
// and whether the event ended. The LF of a CRLF that ends it is left for the
// next call, so that the answer does not depend on how the bytes were cut.
func (e *events) next(p []byte) (n int, end bool) {
	i := e.skipMark(p)
	for i < len(p) {
		if e.afterCR {
			e.afterCR = false
			if p[i] == '\n' {
				i++
				continue
			}
		}
		part := p[i:min(len(p), i+searched)]
		stop := lineEnd(part)
		if stop > 0 {
			e.take(part[:stop])
			i += stop
		}
		if stop == len(part) {
			continue
		}
		e.afterCR = p[i] == '\r'
		i++
		if e.endLine() {
			return i, true
		}
	}
	return len(p), false
}

// atBoundary reports whether the bytes so far end between two events.
func (e *events) atBoundary() bool {
	return !e.inEvent && (e.mark == 0 || int(e.mark) == len(byteOrderMark))
}

// skipMark passes over a byte order mark at the start of the stream, and
// returns its length in p. A mark that breaks off begins a line of no known name.
func (e *events) skipMark(p []byte) (n int) {
	for int(e.mark) < len(byteOrderMark) && n < len(p) {
		if p[n] != byteOrderMark[e.mark] {
			if e.mark > 0 {
				e.field, e.inEvent, e.length = ignored, true, int(e.mark)
			}
			e.mark = uint8(len(byteOrderMark))
			break
		}
		e.mark++
		n++
	}
	return n
}

// lineEnd returns where the line ends in p, which is not empty; len(p) when it
// does not end there.
func lineEnd(p []byte) int {
	if p[0] == '\n' || p[0] == '\r' {
		return 0
	}
	if i := bytes.IndexByte(p, '\n'); i >= 0 {
		p = p[:i]
	}
	if i := bytes.IndexByte(p, '\r'); i >= 0 {
		return i
	}
	return len(p)
}

// take reads a part of a line.
func (e *events) take(part []byte) {
	e.inEvent = true
	e.length += len(part)
	e.tooLong = e.tooLong || e.length > MaxLine
	if e.field == unnamed {
		colon := bytes.IndexByte(part, ':')
		if colon < 0 {
			e.name.add(part)
			return
		}
		e.beginField(e.name.with(part[:colon]))
		part = part[colon+1:]
	}
	if e.space && len(part) > 0 {
		e.space = false
		if part[0] == ' ' {
			part = part[1:]
		}
	}
	switch e.field {
	case dataField:
		e.takeData(part)
	case nameField:
		e.name.add(part)
	}
}

// beginField begins the value of the field called name.
func (e *events) beginField(name []byte) {
	switch string(name) {
	case "data":
		e.field = dataField
		if e.hasData {
			e.takeData([]byte{'\n'})
		}
		e.hasData = true
	case "event":
		e.field = nameField
	default:
		e.field = ignored
	}
	e.name.reset()
	e.space = true
}

// takeData reads bytes of the event's data.
func (e *events) takeData(p []byte) {
	for i := 0; int(e.matched) < len(doneMark) && i < len(p); i++ {
		if p[i] != doneMark[e.matched] {
			e.matched = uint8(len(doneMark))
			break
		}
		e.matched++
		e.done = e.done || int(e.matched) == len(doneMark)
	}
	e.document.write(p)
}

// endLine ends a line, and reports whether it was the blank one after an event.
func (e *events) endLine() (blank bool) {
	blank = e.length == 0
	switch {
	case blank:
		e.lastUsage, e.lastNull = e.usageOnly(), e.nullUsage()
		e.document.reset()
		e.inEvent, e.hasData, e.matched = false, false, 0
	case e.field == unnamed: // a field may be a name alone
		e.beginField(e.name.with(nil))
	case e.field == nameField:
		e.announce(e.name.with(nil))
	}
	e.name.reset()
	e.field, e.space, e.length = unnamed, false, 0
	return blank
}
