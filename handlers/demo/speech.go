package demo

import (
	"iter"
	"strings"
	"unicode"
)

const (
	// minPiece and maxPiece are the characters of a piece. With three at least,
	// a text never counts more tokens than a third of its bytes, rounded up,
	// which is what the gateway takes for the most a backend can claim.
	minPiece, maxPiece = 3, 8

	// maxSpeech bounds an answer in pieces, as the output of a model is bounded.
	maxSpeech = 1 << 16
)

// pieces yields text cut as it is streamed and counted: before a space once a
// piece has minPiece characters, else after maxPiece. Only the last piece may be
// shorter than minPiece.
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

// tokens counts the pieces of text.
func tokens(text string) int {
	n := 0
	for range pieces(text) {
		n++
	}
	return n
}

// ending is why a speech is over.
type ending int

const (
	finished ending = iota // everything was said
	limited                // the limit on tokens was reached
	stopped                // a stop sequence came up
	calling                // it ends in the call of a tool
)

// speech is a text as a model comes to say it: words, or the arguments of a call.
type speech struct {
	pieces []string
	end    ending
	stop   string // the sequence that came up, when stopped
	call   *tool  // the tool that is called, when calling
	echo   string // the prompt that comes before it, if it is to be repeated
}

// speak says text, at most limit pieces of it and not beyond the first of the
// stop sequences. A sequence counts only when the limit leaves room for all of
// it, since a model would not have said it otherwise.
func speak(text string, limit int, stops []string) speech {
	s := speech{end: finished}
	limit = min(limit, maxSpeech)
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

// respond calls a tool if there is one and its arguments fit into the limit, and else
// says words: of the result of a tool, or of what the user asked.
func (q *request) respond(r rehearsal, limit int, stops []string) (speech, error) {
	call, err := q.tool()
	if err != nil {
		return speech{}, err
	}
	said, fromTool := q.Messages[len(q.Messages)-1].result()
	if !fromTool {
		said = q.asked()
	}
	if call != nil && !fromTool {
		if s := speak(call.arguments(), limit, nil); s.end == finished {
			s.end, s.call = calling, call
			return s, nil
		}
	}
	return speak(words(r, said, fromTool), limit, stops), nil
}

// text is all that was said.
func (s speech) text() string { return strings.Join(s.pieces, "") }

// size is the length of text in bytes.
func (s speech) size() int { return len(s.text()) }

// words is what there is to say about a user's text, or about a tool's result.
func words(r rehearsal, said string, fromTool bool) string {
	switch {
	case r.long > 0:
		return "word" + strings.Repeat(" word", r.long-1) // each is one piece
	case fromTool:
		return "The tool answered: " + said
	case said == "":
		return "You said nothing."
	default:
		return "You said: " + said
	}
}
