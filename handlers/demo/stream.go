package demo

import (
	"bytes"
	"errors"
	"net/http"
)

// turnAfter is the number of pieces after which a stream takes the bad turn it
// was asked to take. A shorter stream takes it after its last piece.
const turnAfter = 3

// stream sends events until the client leaves or the stream takes a bad turn.
// Like a bufio.Writer it keeps its first error and does nothing from then on,
// so that a dialect can tell its events one after another.
type stream struct {
	*performance
	control   *http.ResponseController
	rehearsal rehearsal
	turn      int // the piece after which the bad turn comes
	said      int // pieces sent
	buf       bytes.Buffer
	over      bool
	err       error
}

// event sends one event and flushes it. Without a name it has data only.
func (s *stream) event(name string, data any) {
	s.write(name, encode(data))
}

// piece sends an event that carries a piece of the answer, then pauses.
func (s *stream) piece(name string, data any) {
	s.event(name, data)
	if s.over {
		return
	}
	s.said++
	if s.said == s.turn {
		s.takeTurn()
	}
	s.fail(wait(s.ctx, s.pace))
}

// takeTurn does what was asked for the middle of the stream.
func (s *stream) takeTurn() {
	if s.rehearsal.stall > 0 {
		s.fail(wait(s.ctx, s.rehearsal.stall))
	}
	if s.rehearsal.breakOff {
		panic(http.ErrAbortHandler)
	}
	if s.rehearsal.fail {
		f := rehearsed(statusOverloaded)
		s.event(s.dialect.errorEvent, s.dialect.errorBody(f, s.w.Header().Get(s.dialect.idHeader)))
		s.over = true
	}
}

// write sends an event whose data is encoded.
func (s *stream) write(name string, data []byte) {
	if s.over {
		return
	}
	s.buf.Reset()
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	s.buf.WriteString("data: ")
	s.buf.Write(data)
	s.buf.WriteString("\n\n")
	if _, err := s.w.Write(s.buf.Bytes()); err != nil {
		s.fail(err)
		return
	}
	// A writer that cannot flush delivers everything at the end.
	if err := s.control.Flush(); !errors.Is(err, http.ErrNotSupported) {
		s.fail(err)
	}
}

// fail ends the stream if err is an error.
func (s *stream) fail(err error) {
	if err != nil && !s.over {
		s.over, s.err = true, err
	}
}
