package usage

import (
	"bytes"
	"math"
	"strconv"
)

// reports combines the usage objects of an answer. They are cumulative, so the last one
// counts. A figure that an object leaves out keeps its value. If the sum of the input or of
// the output is less than before, each figure of that side keeps its largest value. (With
// the same or a greater sum, the figures may move between fresh and cached tokens.) The
// reports of the images of a stream are not cumulative: see addImage.
type reports struct {
	format   *Format
	figures          // as read so far
	previous figures // at the beginning of the current or the last usage object
	inObject bool    // a usage object is being read

	hasOutput    bool  // the current text has a figure of the output
	coveredBytes int64 // bytes delivered up to the end of the last such text
}

func (r *reports) begin() {
	r.previous, r.inObject = r.figures, true
}

func (r *reports) end() {
	if r.inObject {
		r.figures, r.inObject = r.current(), false
	}
}

// addImage handles the last usage object, which came with an image, the number images of a
// stream. The object counts this image alone, and is added to the ones before. It counts all
// images if its output is as much as that of the images before and another one of their
// average. last has the figures at its end, before they were combined with those before.
func (r *reports) addImage(last *figures, images int64) {
	before, _, _ := r.previous.tokens(r.format.messages)
	after, _, _ := last.tokens(r.format.messages)
	if images < 2 || after.AllOutput() >= before.AllOutput()/(images-1)*images {
		return
	}
	for which := range r.figures.value {
		r.figures.value[which] = min(r.previous.value[which]+last.value[which], maxFigure)
	}
}

// current returns the figures as if the current usage object ended here.
func (r *reports) current() figures {
	f := r.figures
	if !r.inObject {
		return f
	}
	before, _, _ := r.previous.tokens(r.format.messages)
	after, _, _ := f.tokens(r.format.messages)
	if after.AllInput() < before.AllInput() {
		f.raise(&r.previous, 0, firstOutput)
	}
	if after.AllOutput() < before.AllOutput() {
		f.raise(&r.previous, firstOutput, figureCount)
	}
	return f
}

// raise sets each figure in [from, to) to its value in g if that is greater.
func (f *figures) raise(g *figures, from, to figure) {
	for which := from; which < to; which++ {
		f.value[which] = max(f.value[which], g.value[which])
	}
}

func (r *reports) set(which figure, n int64) {
	r.figures.set(which, n)
	r.hasOutput = r.hasOutput || which == outputTokens || which == completionTokens
}

// endText ends a text. If it has a figure of the output, that figure covers all bytes that
// were delivered so far.
func (r *reports) endText(delivered int64) {
	if r.hasOutput {
		r.coveredBytes, r.hasOutput = delivered, false
	}
}

// tokens returns the tokens so far, and which sides are reported. The output is not reported
// if content came after the last figure, or if there is text but only a total.
func (r *reports) tokens(delivered int64) (t Tokens, input, output bool) {
	f := r.current()
	t, input, output = f.tokens(r.format.messages)
	if r.format.InputOnly {
		if t.AllInput() == 0 {
			t.Input = f.value[totalTokens]
		}
		input = t.AllInput() > 0
		return t, input, input
	}
	onlyTotal := f.value[outputTokens]+f.value[completionTokens]+f.value[reasoningTokens] == 0
	return t, input, output && (delivered == 0 || !onlyTotal) && (r.hasOutput || delivered <= r.coveredBytes)
}

// countOf returns the number in text, rounded up and at most maxFigure. It returns -1 if text
// is not a number, or a negative one. Some servers write figures as floats: 100.0, 1e2.
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
