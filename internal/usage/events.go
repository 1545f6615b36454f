package usage

import "bytes"

// events parses an event stream as the HTML standard defines it (section "Server-sent
// events"). Lines end with LF, CR or CRLF, a byte order mark may come first, and several
// data lines make one text. A field takes effect as soon as it was read, before the end of
// its event.
type events struct {
	document

	bomLength   uint8 // bytes of the byte order mark that were read; 3 also if there is none
	afterCR     bool  // a line ended with CR: an LF after it belongs to it
	inEvent     bool  // a line was read since the last blank one
	hasData     bool  // a data line was read
	field       field
	valueStart  bool  // the first byte of the value is next; a space there is not part of the value
	name        token // the name of the field, then the name of the event
	length      int   // bytes of the line so far
	doneMatched uint8 // bytes at the start of the event's data that match doneMark; len(doneMark): all, or the data differs

	done        bool // doneMark was read
	foreignData bool // an event had data that is neither doneMark nor a chunk of a completion
	tooLong     bool // a line was longer than MaxLine
	lastUsage   bool // the last event only contained usage
	lastNull    bool // the last event may have "usage":null at the top level
}

// field is the kind of the current line.
type field uint8

const (
	readingName field = iota // its name is being read
	dataField                // the data of the event
	eventField               // the name of the event
	ignored                  // a comment, or another field
)

const (
	byteOrderMark = "\xef\xbb\xbf"
	doneMark      = "[DONE]"

	// maxSearch bounds one search for the end of a line. Otherwise a large write with
	// many short lines would be searched to its end for each line.
	maxSearch = 512
)

// next parses p up to the end of an event. It returns the number of bytes, and whether the
// event ended. The LF of the CRLF at the end is left for the next call, so that the result
// does not depend on how the bytes are split.
func (e *events) next(p []byte) (n int, end bool) {
	i := e.skipBOM(p)
	for i < len(p) {
		if e.afterCR {
			e.afterCR = false
			if p[i] == '\n' {
				i++
				continue
			}
		}
		part := p[i:min(len(p), i+maxSearch)]
		stop := lineEnd(part)
		if stop > 0 {
			e.parseLine(part[:stop])
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
	return !e.inEvent && (e.bomLength == 0 || int(e.bomLength) == len(byteOrderMark))
}

// skipBOM skips a byte order mark at the start of the stream, and returns its length in p.
// An incomplete mark begins a line with an unknown name.
func (e *events) skipBOM(p []byte) (n int) {
	for int(e.bomLength) < len(byteOrderMark) && n < len(p) {
		if p[n] != byteOrderMark[e.bomLength] {
			if e.bomLength > 0 {
				e.field, e.inEvent, e.length = ignored, true, int(e.bomLength)
			}
			e.bomLength = uint8(len(byteOrderMark))
			break
		}
		e.bomLength++
		n++
	}
	return n
}

// lineEnd returns the index of the end of the line in p, which is not empty, or len(p) if it
// does not end in p.
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

// parseLine parses a part of a line.
func (e *events) parseLine(part []byte) {
	e.inEvent = true
	e.length += len(part)
	e.tooLong = e.tooLong || e.length > MaxLine
	if e.field == readingName {
		colon := bytes.IndexByte(part, ':')
		if colon < 0 {
			e.name.add(part)
			return
		}
		e.beginField(e.name.finish(part[:colon]))
		part = part[colon+1:]
	}
	if e.valueStart && len(part) > 0 {
		e.valueStart = false
		if part[0] == ' ' {
			part = part[1:]
		}
	}
	switch e.field {
	case dataField:
		e.parseData(part)
	case eventField:
		e.name.add(part)
	}
}

// beginField begins the value of the field called name.
func (e *events) beginField(name []byte) {
	switch string(name) {
	case "data":
		e.field = dataField
		if e.hasData {
			e.parseData([]byte{'\n'})
		}
		e.hasData = true
	case "event":
		e.field = eventField
	default:
		e.field = ignored
	}
	e.name.reset()
	e.valueStart = true
}

// parseData parses bytes of the event's data.
func (e *events) parseData(p []byte) {
	for i := 0; int(e.doneMatched) < len(doneMark) && i < len(p); i++ {
		if p[i] != doneMark[e.doneMatched] {
			e.doneMatched = uint8(len(doneMark))
			break
		}
		e.doneMatched++
		e.done = e.done || int(e.doneMatched) == len(doneMark)
	}
	e.document.write(p)
}

// endLine ends a line, and reports whether it was the blank line after an event.
func (e *events) endLine() (blank bool) {
	blank = e.length == 0
	switch {
	case blank:
		e.lastUsage, e.lastNull = e.usageOnly(), e.nullUsage()
		e.foreignData = e.foreignData || e.doneMatched > 0 && !e.done && e.seen&(seenChoice|seenNoChoices|seenFault) == 0
		e.document.reset()
		e.inEvent, e.hasData, e.doneMatched = false, false, 0
	case e.field == readingName: // a field may have a name only
		e.beginField(e.name.finish(nil))
	case e.field == eventField:
		e.eventType(e.name.finish(nil))
	}
	e.name.reset()
	e.field, e.valueStart, e.length = readingName, false, 0
	return blank
}
