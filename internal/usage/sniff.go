package usage

import "bytes"

// streamFields begin an event stream: the fields of the HTML standard, and a
// comment. No JSON text begins so.
var streamFields = [...]string{"data:", "event:", "id:", "retry:", ":"}

const longestField = len("event:")

// sniffer finds out whether an answer is an event stream.
type sniffer struct {
	done bool
	n    uint8              // bytes of head
	head [longestField]byte // what has come of a field's name; nothing else was read
}

// knows reports whether it is known what the answer is, with the bytes p that come
// next. If so, the Reader has read all before p; if not, p was taken as well.
func (r *Reader) knows(p []byte) bool {
	s := &r.sniff
	if s.done {
		return true
	}
	if s.n == 0 {
		p = bytes.TrimLeft(p, "\r\n")
	}
	var start [longestField]byte
	n := copy(start[:], s.head[:s.n])
	n += copy(start[n:], p)
	for _, field := range streamFields {
		if n >= len(field) && string(start[:len(field)]) == field {
			r.stream = true
			break
		}
		if n < len(field) && string(start[:n]) == field[:n] {
			s.n = uint8(copy(s.head[:], start[:n]))
			return false
		}
	}
	s.done = true
	r.read(s.head[:s.n])
	return true
}
