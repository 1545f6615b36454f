package usage

import (
	"bytes"
	"strings"
)

// streamFields are the texts with which an event stream can begin: the fields of the HTML
// standard, and a comment. No JSON text begins with one of them.
var streamFields = [...]string{"data:", "event:", "id:", "retry:", ":"}

const maxHead = len(byteOrderMark) + len("event:")

// sniffer detects whether an answer is an event stream.
type sniffer struct {
	done  bool
	first byte          // of the answer, without a byte order mark and white space
	n     uint8         // bytes of head
	head  [maxHead]byte // the first bytes, while they may be part of a byte order mark or of a field's name
}

// detect reports whether the kind of the answer is known, given the next bytes p. If it is,
// the Reader has read all bytes before p. If not, p was stored as well.
func (r *Reader) detect(p []byte) bool {
	s := &r.sniff
	if s.done {
		return true
	}
	if s.n == 0 && !r.stream {
		p = bytes.TrimLeft(p, "\r\n")
	}
	var start [maxHead]byte
	n := copy(start[:], s.head[:s.n])
	n += copy(start[n:], p)
	stream, known := beginsStream(string(start[:n]), r.stream)
	if !known {
		s.n = uint8(copy(s.head[:], start[:n]))
		return false
	}
	r.stream, s.done = stream, true
	if begin := bytes.TrimLeft(bytes.TrimPrefix(start[:n], []byte(byteOrderMark)), " \t\r\n"); len(begin) > 0 {
		s.first = begin[0]
	}
	r.read(s.head[:s.n])
	s.n = 0
	return true
}

// beginsStream reports whether an answer with this start is an event stream, and whether
// that is known. An answer that is declared as a stream is one unless it begins like JSON.
func beginsStream(start string, declared bool) (stream, known bool) {
	start, marked := strings.CutPrefix(start, byteOrderMark)
	if start == "" || !marked && strings.HasPrefix(byteOrderMark, start) {
		return declared, false
	}
	if declared {
		return start[0] != '{' && start[0] != '[', true
	}
	for _, field := range streamFields {
		switch {
		case strings.HasPrefix(start, field):
			return true, true
		case strings.HasPrefix(field, start):
			return false, false
		}
	}
	return false, true
}
