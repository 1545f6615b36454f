package usage

import "math"

// document follows a JSON text as its bytes pass, cut anywhere, and any texts that
// stand behind it, such as the lines of application/x-ndjson. It descends
// only where the table of places leads and counts brackets elsewhere, so what
// it needs to remember is small and fixed. It is no validator: it accepts some
// texts that are not JSON, but it never loses its place in one that is.
//
// Only the first group of fields belongs to the text; the rest adds up over
// all the texts of an answer.
type document struct {
	state  state
	place  place // of the value that is expected or being read
	naming bool  // the string being read is a name
	raw    bool  // the part being passed over is the JSON of a tool's input
	saw    saw
	depth  uint8 // open objects and arrays, those passed over not counted
	stack  [maxDepth]frame
	skip   int   // open brackets of the part being passed over
	number int64 // the plain integer being read; -1 when it is none
	escape struct {
		digits uint8 // of \uXXXX, still to come
		code   uint16
	}
	token  token // the name, type or count being read
	choice struct {
		index    int32 // no more than an int32 holds
		finished bool
	}

	parts     *parts // of a request; nil in an answer
	reports   reports
	report    report
	delivered delivered
	choices   choices
	failed    bool // an error came
	stopped   bool // a message_stop came
}

// maxDepth is how deep the table of places is followed.
const maxDepth = 16

// frame is an open object or array.
type frame struct {
	place  place
	object bool
}

// state is what a document expects at its next byte.
type state uint8

const (
	atStart      state = iota // the top value
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
	inSkipped                 // the rest of an object or array of no interest
	ended                     // white space, or another text
	broken                    // anything: the text is not JSON
)

// saw remembers which members a document had, to know a usage-only chunk by.
type saw uint8

const (
	sawUsage     saw = 1 << iota // a usage object at the top
	sawNoChoices                 // an empty array of choices
	sawChoice                    // a choice
	sawFault                     // an error
	sawNoUsage                   // a usage at the top that is no object, such as null
	sawSeveral                   // the end of another text before this one
)

// reset makes d ready for the next text of the same answer.
func (d *document) reset() {
	d.state, d.place, d.depth, d.skip, d.saw = atStart, top, 0, 0, 0
	d.naming, d.raw = false, false
	d.reports.end()
	d.reports.cover(d.delivered.bytes())
	if d.report.passes != nil {
		d.report.passes.open = false
	}
}

// usageOnly reports whether the text was a chunk that only brings usage.
func (d *document) usageOnly() bool {
	return d.state == ended && d.saw == sawUsage|sawNoChoices
}

// nullUsage reports whether the text may have a member "usage":null at its top.
func (d *document) nullUsage() bool {
	return d.state == ended && d.saw&sawNoUsage != 0
}

// write follows the next bytes of the text.
func (d *document) write(p []byte) {
	from := 0 // where the uncounted bytes begin, while raw
	for i := 0; i < len(p); {
		c := p[i]
		switch d.state {
		case inString:
			end := i + plain(p[i:])
			if end == len(p) {
				d.part(p[i:])
				i = end
				break
			}
			if p[end] == '"' {
				d.endString(p[i:end])
				i = end + 1 + d.leap(p[end+1:])
			} else {
				d.part(p[i:end])
				d.token.spoil()
				d.state = inEscape
				i = end + 1
			}
		case inEscape:
			d.state = inString
			if c == 'u' {
				d.state, d.escape.digits, d.escape.code = inUnicode, 4, 0
			} else {
				d.deliver(1)
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
			if d.place.counts() {
				d.token.add(p[start:i])
			}
			if i < len(p) {
				d.endScalar()
				i += d.leap(p[i:])
			}
		case inSkipped:
			for ; i < len(p) && !brackets[p[i]]; i++ {
			}
			if i == len(p) {
				break
			}
			if d.bracket(p[i]) && d.raw {
				d.raw = false
				d.delivered.text += int64(i - from)
			}
			i++
		case broken:
			return
		default:
			i++
			if c > ' ' {
				d.structure(c)
				if d.state == inScalar {
					i-- // its first byte is read with the others
				} else if d.raw {
					from = i
				}
			}
		}
	}
	if d.raw {
		d.delivered.text += int64(len(p) - from)
	}
}

// leap takes the bytes after a string or scalar where they are the usual : or
// ," of compact JSON, and returns how many it took. It is only for speed.
func (d *document) leap(p []byte) int {
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
		d.naming = true
	default:
		return 0
	}
	d.openString()
	return 2
}

// structure takes a byte that stands between strings and scalars.
func (d *document) structure(c byte) {
	switch d.state {
	case atName, atFirstName:
		switch {
		case c == '"':
			d.naming = true
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
	case ended: // the next text of the answer, as in a list of lines
		d.reset()
		d.saw = sawSeveral
		d.structure(c)
	default: // a value
		switch {
		case c == '"':
			d.openString()
		case c == '{' || c == '[':
			d.open(c == '{')
		case c == ']' && d.state == atFirstValue:
			if d.place == choice && d.depth == 2 {
				d.saw |= sawNoChoices
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

// open enters an object or array, or begins to pass over it.
func (d *document) open(object bool) {
	switch d.place {
	case usageReport:
		if object && d.depth == 1 {
			d.saw |= sawUsage
		}
	case choice:
		if object {
			d.saw |= sawChoice
			d.choice.index, d.choice.finished = 0, false
		}
	case fault:
		d.fail()
	case block:
		d.delivered.block = true
		d.report.ran = false
	case blocks:
		d.report.ran = false
		d.delivered.element = d.delivered.element || object
	case toolInput:
		d.raw = true
	}
	if !d.place.holds() || d.depth == maxDepth {
		d.state, d.place, d.skip = inSkipped, nothing, 1
		return
	}
	switch {
	case d.place == iteration:
		d.report.openPass(object)
	case object && d.place == askedText:
		d.parts.begin()
	case object && (d.place == usageReport || d.place == openingUsage):
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
		case block, blocks:
			d.report.begin()
		case iteration:
			d.report.passes.close()
		case usageReport, openingUsage:
			d.reports.end()
		case askedText:
			d.parts.end()
		}
	}
	d.endValue()
}

// bracket takes a bracket or quote of the part being passed over, and reports
// whether the part ended with it.
func (d *document) bracket(c byte) bool {
	switch c {
	case '"':
		d.openString()
	case '{', '[':
		d.skip++
	default:
		d.skip--
		if d.skip == 0 {
			d.endValue()
			return true
		}
	}
	return false
}

// endValue goes on after a value.
func (d *document) endValue() {
	d.state = atComma
	if d.depth == 0 {
		d.state = ended
	}
}

// digit takes a byte of a scalar. What has a sign, a fraction or an exponent is no
// plain integer: see [countOf].
func (d *document) digit(c byte) {
	switch {
	case c < '0' || c > '9':
		d.number = -1
	case d.number >= 0:
		d.number = min(d.number*10+int64(c-'0'), maxFigure)
	}
}

func (d *document) endScalar() {
	if d.place.counts() {
		if d.number < 0 {
			d.number = countOf(d.token.with(nil))
		}
		d.takeCount(d.number)
	}
	if d.place == usageReport && d.depth == 1 {
		d.saw |= sawNoUsage
	}
	d.endValue()
}

// takeCount takes a number at a place of numbers; -1 is none.
func (d *document) takeCount(n int64) {
	switch {
	case n < 0:
	case d.place >= firstFigure:
		which := figure(d.place - firstFigure)
		if p := d.report.passes; p != nil && p.open {
			p.figures.set(which, n)
		} else {
			d.reports.set(which, n)
		}
	case d.place == toolUses:
		d.report.used(n)
	case d.place == choiceIndex:
		d.choice.index = int32(min(n, math.MaxInt32))
	}
}

// delimits are the bytes that end a scalar; brackets those that matter in a
// part being passed over.
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
