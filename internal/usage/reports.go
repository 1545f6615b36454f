package usage

import (
	"bytes"
	"math"
	"strconv"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// reports adds up the usage objects of an answer. They are cumulative, so that the
// last one counts, and one that leaves a figure out does not take it back. One
// whose input or output is less in all takes nothing back, either: of that side,
// each figure keeps its greatest value. (A report of as much or more may divide it
// anew, between fresh and cached tokens.)
type reports struct {
	figures         // as far as they were read
	before  figures // those at the beginning of the object that is being read
	reading bool
	dialect dialect.Dialect

	told    bool  // the text that is being read has a figure of the output
	covered int64 // bytes that were delivered up to the end of the last such text
}

func (r *reports) begin() {
	r.before, r.reading = r.figures, true
}

func (r *reports) end() {
	if r.reading {
		r.figures, r.reading = r.settled(), false
	}
}

// settled returns the figures as if the object that is being read ended here.
func (r *reports) settled() figures {
	f := r.figures
	if !r.reading {
		return f
	}
	was, _, _ := r.before.tokens(r.dialect)
	is, _, _ := f.tokens(r.dialect)
	if is.AllInput() < was.AllInput() {
		f.raise(&r.before, 0, firstOutput)
	}
	if is.AllOutput() < was.AllOutput() {
		f.raise(&r.before, firstOutput, figureCount)
	}
	return f
}

// raise gives the figures between two the values of g where these are greater.
func (f *figures) raise(g *figures, from, to figure) {
	for which := from; which < to; which++ {
		f.value[which] = max(f.value[which], g.value[which])
	}
}

func (r *reports) set(which figure, n int64) {
	r.figures.set(which, n)
	r.told = r.told || which == outputTokens || which == completionTokens
}

// cover notes, at the end of a text, what its report covers: all that was delivered
// up to here.
func (r *reports) cover(delivered int64) {
	if r.told {
		r.covered, r.told = delivered, false
	}
}

// tokens returns the tokens so far, and for which side there is a report. A figure
// of the output that came before content of a later text is no report of that, and a
// total alone is no report of text.
func (r *reports) tokens(delivered int64) (t Tokens, input, output bool) {
	f := r.settled()
	t, input, output = f.tokens(r.dialect)
	totalAlone := f.value[outputTokens]+f.value[completionTokens]+f.value[reasoningTokens] == 0
	return t, input, output && (delivered == 0 || !totalAlone) && (r.told || delivered <= r.covered)
}

// countOf returns the count that a number is, rounded up and at most maxFigure; -1
// where text is no number, or a negative one. Some servers write their figures as
// floats: 100.0, 1e2.
func countOf(text []byte) int64 {
	if len(text) == 0 || text[0] < '0' || text[0] > '9' || len(bytes.Trim(text, "0123456789.eE+-")) != 0 {
		return -1
	}
	n, err := strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(n, 1) {
		return -1
	}
	return int64(math.Ceil(min(n, maxFigure)))
}
