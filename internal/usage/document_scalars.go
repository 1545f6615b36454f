package usage

import "math"

// digit adds a byte of a scalar to number. A scalar with a sign, a fraction or an exponent is
// not a plain integer: see [countOf].
func (d *document) digit(c byte) {
	switch {
	case c < '0' || c > '9':
		d.number = -1
	case d.number >= 0:
		d.number = min(d.number*10+int64(c-'0'), maxFigure)
	}
}

func (d *document) endScalar() {
	if d.place.isNumber() {
		if d.number < 0 {
			d.number = countOf(d.token.finish(nil))
		}
		d.storeNumber(d.number)
	}
	if d.place == usageReport && d.depth == 1 {
		d.seen |= seenNullUsage
	}
	d.endValue()
}

// storeNumber stores a number by its place. It ignores -1, which stands for a value that is
// not a count.
func (d *document) storeNumber(n int64) {
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
		d.report.setToolUses(n)
	case d.place == searchUnits:
		d.delivered.searches = max(d.delivered.searches, int32(min(n, math.MaxInt32)))
	case d.place == recordedSeconds:
		if d.media != nil { // of an answer of text, it has no meaning
			d.media.seconds = n
		}
	case d.place == sequenceNumber:
		if d.earlier != nil {
			d.earlier.event = max(d.earlier.event, n)
		}
	case d.place == choiceIndex:
		d.choice.index = int32(min(n, math.MaxInt32))
	}
}
