package demo

import (
	"iter"
	"strings"
	"unicode"
)

const (
	// minPiece and maxPiece are the lengths of a piece in characters. With at
	// least three, a text never has more tokens than a third of its bytes,
	// rounded up. That is the most that the gateway accepts from a backend.
	minPiece, maxPiece = 3, 8

	// maxPieces is the maximum length of an answer in pieces.
	maxPieces = 1 << 16
)

// pieces yields the pieces of a text. A piece ends before the first space after
// minPiece characters, at the latest after maxPiece characters. Only the last
// piece may be shorter than minPiece.
func pieces(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		start, length := 0, 0
		for i, r := range text {
			if length == maxPiece || length >= minPiece && unicode.IsSpace(r) {
				if !yield(text[start:i]) {
					return
				}
				start, length = i, 0
			}
			length++
		}
		if length > 0 {
			yield(text[start:])
		}
	}
}

// tokens returns the number of pieces of text.
func tokens(text string) int {
	n := 0
	for range pieces(text) {
		n++
	}
	return n
}

// ending is why a generated text ends.
type ending int

const (
	finished ending = iota // the text is complete
	limited                // the limit on tokens was reached
	stopped                // a stop sequence was generated
	calling                // it ends with a tool call
)

// generated is a generated text: an answer, or the arguments of a tool call.
type generated struct {
	pieces []string
	end    ending
	stop   string // the stop sequence, if stopped
	call   *tool  // the tool, if calling
	echo   string // the prompt, if it must be repeated first
}

// generate truncates a text to at most limit pieces, and before the first stop
// sequence. A sequence counts only if all of it is within the limit.
func generate(text string, limit int, stops []string) generated {
	s := generated{end: finished}
	limit = min(limit, maxPieces)
	n, length := 0, 0
	for p := range pieces(text) {
		if n == limit {
			s.end = limited
			break
		}
		n++
		length += len(p)
	}
	text = text[:length]
	for _, stop := range stops {
		if at := strings.Index(text, stop); at >= 0 && at < length {
			s.end, s.stop, length = stopped, stop, at
		}
	}
	for p := range pieces(text[:length]) {
		s.pieces = append(s.pieces, p)
	}
	return s
}

// respond returns a tool call if there is a tool and its arguments are within
// the limit. Otherwise it returns an answer to the result of a tool, or to the
// user's text, in the form that the request asks for.
func (q *request) respond(r simulation, limit int, stops []string) (generated, error) {
	call, err := q.tool()
	if err != nil {
		return generated{}, err
	}
	text, fromTool := q.Messages[len(q.Messages)-1].result()
	if !fromTool {
		text = q.lastUserText()
	}
	if call != nil && !fromTool {
		if s := generate(sampleObject(call.schema), limit, nil); s.end == finished {
			s.end, s.call = calling, call
			return s, nil
		}
	}
	text = answerText(r, text, fromTool)
	if r.long == 0 {
		text = q.structured(text)
	}
	return generate(text, limit, stops), nil
}

// text returns the whole text.
func (s generated) text() string { return strings.Join(s.pieces, "") }

// content returns pieces of the text, or none if it is the arguments of a call.
func (s generated) content(from, to int) []string {
	if s.call != nil {
		return nil
	}
	return s.pieces[from:to]
}

// size returns the length of the text in bytes.
func (s generated) size() int { return len(s.text()) }

// answerText returns the answer to a user's text or a tool's result.
func answerText(r simulation, text string, fromTool bool) string {
	switch {
	case r.long > 0:
		return "word" + strings.Repeat(" word", r.long-1) // each is one piece
	case fromTool:
		return "The tool answered: " + text
	case text == "":
		return "You said nothing."
	default:
		return "You said: " + text
	}
}
