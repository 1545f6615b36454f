package usage

// document parses a JSON text in parts of any size, and further texts after it, such as the
// lines of application/x-ndjson. It parses the members that the table of places has. In
// all others it only counts brackets, so that its state is small and has a fixed size. It
// does not validate: it accepts some texts that are not JSON, but parses every valid one
// correctly.
//
// The first group of fields belongs to the current text. The others accumulate over all
// texts of an answer.
type document struct {
	state       state
	place       place // of the value that is expected or being read
	inName      bool  // the string being read is a name
	inToolInput bool  // the skipped value is the JSON of a tool's input
	seen        seen
	depth       uint8 // open objects and arrays, without skipped ones
	stack       [maxDepth]frame
	skipDepth   int   // open brackets of the skipped value
	number      int64 // the value of the integer being read; -1: it is not a plain integer
	escape      struct {
		digits uint8 // digits of \uXXXX that are still expected
		code   uint16
	}
	token  token // the name, type or count being read
	choice struct {
		index    int32 // at most the largest int32
		finished bool
	}

	parts     *parts // of a request; nil in an answer
	reports   reports
	report    report
	delivered delivered
	media     *mediaAnswer // nil: the answer is text
	ids       *objectIDs   // nil: the ids of objects are not collected
	choices   choices
	earlier   *earlier // nil: nobody asks how far the caller has read
	failed    bool     // an error was read
	stopped   bool     // a message_stop, or the whole last event of a response, was read
}

// maxDepth bounds the depth to which the table of places is followed.
const maxDepth = 16

// frame is an open object or array.
type frame struct {
	place  place
	object bool
}

// state is what a document expects at its next byte.
type state uint8

const (
	atStart      state = iota // the top-level value
	atFirstValue              // a value, or the end of an empty array
	atValue                   // a value
	atFirstName               // a name, or the end of an empty object
	atName                    // a name
	atColon                   // the colon after a name
	atComma                   // a comma, or the end of the object or array
	inString                  // the rest of a string
	inEscape                  // the character after a backslash
	inUnicode                 // the digits after \u
	inScalar                  // the rest of a number, true, false or null
	inSkipped                 // the rest of a skipped object or array
	ended                     // white space, or another text
	broken                    // anything: the text is not JSON
)

// seen is the set of members and event types that were read in a text. It identifies a chunk that only
// contains usage, and the events of a response that end an item or the stream.
type seen uint8

const (
	seenUsage     seen = 1 << iota // a usage object at the top level
	seenNoChoices                  // an empty array of choices
	seenChoice                     // a choice
	seenFault                      // an error
	seenNullUsage                  // a usage at the top level that is not an object, such as null
	seenSeveral                    // another text before this one
	seenLastEvent                  // the type of the last event of a response
	seenItemDone                   // the type of the event that ends an item of a response
)

// reset prepares d for the next text of the same answer.
func (d *document) reset() {
	d.endEvent()
	d.state, d.place, d.depth, d.skipDepth, d.seen = atStart, top, 0, 0, 0
	if d.media != nil {
		d.place = d.media.root
	}
	if d.ids != nil && d.ids.list {
		d.place = listAnswer
	}
	d.inName, d.inToolInput = false, false
	d.reports.end()
	d.reports.endText(d.delivered.bytes())
	if d.report.passes != nil {
		d.report.passes.open = false
	}
}

// endEvent handles the end of a text that is an event of a response.
func (d *document) endEvent() {
	if d.report.items != nil && d.seen&seenItemDone != 0 {
		d.countItem(&d.report.items.ended)
	}
	d.delivered.endEvent(d.seen&seenItemDone != 0)
	if e := d.earlier; e != nil && e.repeats() {
		e.repeated = d.delivered.textBytes() + d.delivered.names
	}
	d.stopped = d.stopped || d.ended()
	if d.media != nil {
		d.endMediaEvent()
	}
}

// countItem counts the current item in u. The use of a backend's tool is content.
func (d *document) countItem(u *uses) {
	d.delivered.other = d.delivered.other || d.report.items.tool.n > 0
	d.report.items.count(u)
}

// ended reports whether the text is the whole last event of a response.
func (d *document) ended() bool { return d.seen&seenLastEvent != 0 && d.state == ended }

// usageOnly reports whether the text was a chunk that only contains usage.
func (d *document) usageOnly() bool {
	return d.state == ended && d.seen == seenUsage|seenNoChoices
}

// nullUsage reports whether the text may have a member "usage":null at the top level.
func (d *document) nullUsage() bool {
	return d.state == ended && d.seen&seenNullUsage != 0
}

// write parses the next bytes of the text.
func (d *document) write(p []byte) {
	from := 0 // the first byte of a tool's input that is not counted yet
	for i := 0; i < len(p); {
		c := p[i]
		switch d.state {
		case inString:
			end := i + plainPrefix(p[i:])
			if end == len(p) {
				d.continueString(p[i:])
				i = end
				break
			}
			if p[end] == '"' {
				d.endString(p[i:end])
				i = end + 1 + d.skipPunctuation(p[end+1:])
			} else {
				d.continueString(p[i:end])
				d.state = inEscape
				i = end + 1
			}
		case inEscape:
			d.state = inString
			if c == 'u' {
				d.state, d.escape.digits, d.escape.code = inUnicode, 4, 0
			} else {
				d.character(unescaped[c], 1)
			}
			i++
		case inUnicode:
			if digit, ok := unhex(c); ok {
				d.unicode(digit)
				i++
			} else {
				d.state = inString
			}
		case inScalar:
			start := i
			for ; i < len(p) && !delimits[p[i]]; i++ {
				d.digit(p[i])
			}
			if d.place.isNumber() {
				d.token.add(p[start:i])
			}
			if i < len(p) {
				d.endScalar()
				i += d.skipPunctuation(p[i:])
			}
		case inSkipped:
			for ; i < len(p) && !brackets[p[i]]; i++ {
			}
			if i == len(p) {
				break
			}
			if d.bracket(p[i]) && d.inToolInput {
				d.inToolInput = false
				d.delivered.text += int64(i - from)
			}
			i++
		case broken:
			return
		default:
			i++
			if c > ' ' {
				d.structural(c)
				if d.state == inScalar {
					i-- // the scalar is read from its first byte
				} else if d.inToolInput {
					from = i
				}
			}
		}
	}
	if d.inToolInput {
		d.delivered.text += int64(len(p) - from)
	}
}

// skipPunctuation consumes the : or ," that follows a string or scalar in compact JSON, and
// returns the number of bytes. The result is the same without it, but parsing is slower.
func (d *document) skipPunctuation(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	switch {
	case d.state == atColon && p[0] == ':':
		d.state = atValue
		if p[1] != '"' {
			return 1
		}
	case d.state == atComma && p[0] == ',' && p[1] == '"' && d.stack[d.depth-1].object:
		d.inName = true
	default:
		return 0
	}
	d.openString()
	return 2
}

// structural parses a byte between strings and scalars.
func (d *document) structural(c byte) {
	switch d.state {
	case atName, atFirstName:
		switch {
		case c == '"':
			d.inName = true
			d.openString()
		case c == '}' && d.state == atFirstName:
			d.closeFrame()
		default:
			d.state = broken
		}
	case atColon:
		d.state = atValue
		if c != ':' {
			d.state = broken
		}
	case atComma:
		inner := d.stack[d.depth-1]
		switch {
		case c == ',' && inner.object:
			d.state = atName
		case c == ',':
			d.state, d.place = atValue, inner.place
		case c == '}' && inner.object, c == ']' && !inner.object:
			d.closeFrame()
		default:
			d.state = broken
		}
	case ended: // the next text of the answer, such as the next line
		d.reset()
		d.seen = seenSeveral
		d.structural(c)
	default: // a value
		switch {
		case c == '"':
			d.openString()
		case c == '{' || c == '[':
			d.open(c == '{')
		case c == ']' && d.state == atFirstValue:
			if d.place == choice && d.depth == 2 {
				d.seen |= seenNoChoices
			}
			d.closeFrame()
		case delimits[c]:
			d.state = broken
		default:
			d.state, d.number = inScalar, 0
			d.token.reset()
		}
	}
}

// open enters an object or array, or begins to skip it.
func (d *document) open(object bool) {
	switch d.place {
	case usageReport:
		if object && d.depth == 1 {
			d.seen |= seenUsage
		}
	case choice:
		if object {
			d.seen |= seenChoice
			d.choice.index, d.choice.finished = 0, false
		}
	case fault:
		d.fail()
	case contentBlock:
		d.delivered.contentBlock = true
		d.report.inServerTool = false
	case contentBlocks:
		d.report.inServerTool = false
		d.delivered.hasElement = d.delivered.hasElement || object
	case toolInput:
		d.inToolInput = true
	case imageList:
		d.media.listed, d.media.inElement = true, false
	case outputItem, listedItem:
		d.report.itemsOf().open(object)
	case eventItem:
		d.report.itemsOf().open(true)
	}
	if !d.place.isContainer() || d.depth == maxDepth {
		d.state, d.place, d.skipDepth = inSkipped, nothing, 1
		return
	}
	switch {
	case d.place == iteration:
		d.report.openPass(object)
	case object && d.place == requestText:
		d.parts.begin()
	case object && (d.place == usageReport || d.place == startUsage):
		d.reports.begin()
	}
	d.stack[d.depth] = frame{d.place, object}
	d.depth++
	d.state = atFirstValue
	if object {
		d.state = atFirstName
	}
}

// closeFrame leaves the innermost object or array.
func (d *document) closeFrame() {
	d.depth--
	if f := d.stack[d.depth]; f.object {
		switch f.place {
		case choice:
			d.choices.add(d.choice.index, d.choice.finished)
		case contentBlock, contentBlocks:
			d.report.endBlock()
		case outputItem, listedItem:
			d.countItem(&d.report.items.listed)
		case iteration:
			d.report.passes.close()
		case usageReport, startUsage:
			if d.media != nil {
				d.media.report = d.reports.figures
			}
			d.reports.end()
		case requestText:
			d.parts.end()
		}
	}
	d.endValue()
}

// bracket parses a bracket or quote in the skipped value, and reports whether the value
// ended with it.
func (d *document) bracket(c byte) bool {
	switch c {
	case '"':
		d.openString()
	case '{', '[':
		d.skipDepth++
	default:
		d.skipDepth--
		if d.skipDepth == 0 {
			d.endValue()
			return true
		}
	}
	return false
}

// endValue sets the state after a value.
func (d *document) endValue() {
	d.state = atComma
	if d.depth == 0 {
		d.state = ended
	}
}

// delimits are the bytes that end a scalar. Brackets are the bytes by which the end of a
// skipped value is found.
var (
	delimits = bytesOf(" \t\r\n,:\"[]{}")
	brackets = bytesOf("\"[]{}")
)

func bytesOf(s string) (set [256]bool) {
	for i := range len(s) {
		set[s[i]] = true
	}
	return set
}
