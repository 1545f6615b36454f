// Package usage reads what a model call used and what it delivered out of the
// bytes of a backend's answer while they pass to the client. It holds neither
// the body nor an event of it: a small machine follows the bytes wherever they
// were cut, picks the figures of the usage object, and counts the text that a
// call is charged by when a backend reports nothing.
//
// The layers, each knowing only the one below:
//
//	Trimmer   takes the usage chunk out again that the gateway asked for
//	Reader    one answer, of either dialect, plain or compressed
//	events    lines and fields of an event stream
//	document  one JSON text, followed by the table in places.go
//	reports   the usage objects of an answer, added up
//	figures   what one of them says, made into disjoint Tokens
//	report    what else decides the price: the tier that served, tools, passes
//
// An answer is hostile input. Whatever it holds, the memory of a Reader stays
// the same, no figure leaves [0, 2^53], and a malformed event is lost alone.
package usage

import (
	"slices"
	"sync"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

// MaxLine is the longest line, in bytes, that a stream may have. The Reader
// keeps nothing of a line, so that the bound is not one of memory: a longer line
// is read to its end all the same, but makes [Reader.TooLong] true.
const MaxLine = 16 << 20

// Reader follows one answer. It is fed every byte that passes, in order and in
// any portions, and can be asked at any time. It is not safe for concurrent use.
type Reader struct {
	dialect dialect.Dialect
	stream  bool
	sniff   sniffer // whether it is one
	events  events
	packed  *unpacker // nil unless the body is compressed
	blind   bool      // bytes can not, or no longer, be read
	unread  bool      // bytes passed while blind
	closed  bool
}

// pool keeps Readers between answers: one is a kilobyte of the garbage of each call.
var pool = sync.Pool{New: func() any { return new(Reader) }}

// New returns a Reader for an answer in the dialect d. Stream says that it is declared as
// a text/event-stream. How the answer begins decides: it is an event stream, or JSON
// texts behind each other, since some servers send either under another media type.
// Encoding is the answer's Content-Encoding; gzip and zstd are read, any other makes
// the Reader blind.
//
// The caller calls Release at the end.
func New(d dialect.Dialect, stream bool, encoding string) *Reader {
	r := pool.Get().(*Reader)
	*r = Reader{dialect: d, stream: stream}
	r.events.reports.dialect = d
	r.events.reset()
	format, known := formatOf(encoding)
	switch {
	case !known:
		r.blind = true
	case format != nil:
		r.packed = newUnpacker(format, r.read)
	}
	return r
}

// Write takes the next bytes of the answer. It keeps nothing of p.
func (r *Reader) Write(p []byte) {
	switch {
	case r.closed || len(p) == 0:
		return
	case r.packed == nil && !r.blind:
		r.read(p)
		return
	case !r.blind && r.packed.write(p):
		return
	}
	// What cannot be read is taken for as much text: nothing else is known of it. Of a
	// portion in which a compression turned out to be damaged, some may have been read.
	if r.blind || !r.Began() {
		r.events.delivered.text += int64(len(p))
	}
	r.blind, r.unread = true, true
}

// read takes the next bytes in the clear.
func (r *Reader) read(p []byte) {
	if !r.knows(p) {
		return
	}
	if !r.stream {
		r.events.document.write(p)
		return
	}
	for len(p) > 0 {
		n, _ := r.events.next(p)
		p = p[n:]
	}
}

// Close ends the answer, whether it was whole or not, and releases what a
// compressed one needs. It must be called. What was read stays readable.
func (r *Reader) Close() {
	r.closed = true
	if r.packed != nil {
		r.packed.close()
	}
}

// Release ends the answer, if Close has not, and gives the memory of the Reader back.
// The Reader must not be used afterwards.
func (r *Reader) Release() {
	r.Close()
	pool.Put(r)
}

// Stream reports whether the answer is an event stream, as far as it has come.
func (r *Reader) Stream() bool { return r.stream }

// Tokens returns the usage reported so far, and for which side of the call a
// figure came. A message_start reports the input, but the one token of output
// it names makes no report of the output: it stands in Tokens.Output, and
// output is false until the stream says more. It is false again when content
// comes after the report.
func (r *Reader) Tokens() (t Tokens, input, output bool) {
	return r.events.reports.tokens(r.TextBytes())
}

// Report returns what the answer has said of its usage so far. It shares nothing
// with the Reader.
func (r *Reader) Report() Report {
	report := r.events.report.report()
	report.Tokens, report.Input, report.Output = r.Tokens()
	report.Tools = r.events.report.toolUses(report.Output)
	d := &r.events.delivered
	report.Declined = report.Declined && !d.any() && !d.block && !d.element && !ranTools(report.Tools)
	report.CountsTools = report.CountsTools || r.dialect == dialect.Anthropic
	return report
}

// TextBytes is the number of UTF-8 bytes of text delivered so far: what was
// said, thought, refused, and written as the names and arguments of tools. Bytes that
// cannot be read count as text. See [Estimate].
func (r *Reader) TextBytes() int64 {
	return r.events.delivered.bytes()
}

// Began reports whether content was delivered: in a stream the first event
// with content, otherwise any byte of a body that is not an error. A
// message_start, a ping, an empty block of text or of a thought, and a chunk that
// only names the role are no content; the name of a tool is. Of what cannot be
// read, any byte counts.
func (r *Reader) Began() bool {
	d := &r.events.document
	if r.unread || d.delivered.any() {
		return true
	}
	return !r.stream && d.state != atStart && !d.failed
}

// Shown reports whether something of the content itself was delivered: text,
// reasoning, arguments of a tool, or media. A block that was opened, and the name
// of a tool, are content but show none. Of what cannot be read, any byte counts.
func (r *Reader) Shown() bool { return r.unread || r.events.delivered.shown() }

// CostsUnseen reports whether the answer has content whose cost its text does not
// show: reasoning, media, and content blocks beside text and the caller's tools.
func (r *Reader) CostsUnseen() bool {
	d := &r.events.delivered
	return d.unseen || d.media > 0 || d.sealed > 0 || slices.Max(d.beside[:]) > 0
}

// Finished reports whether a proper end was seen. A stream in the anthropic dialect ends
// with message_stop, one in the openai dialect with [DONE], or when every choice has a
// finish_reason. A JSON text ends if nothing but white space comes after it.
func (r *Reader) Finished() bool {
	e := &r.events
	switch {
	case !r.stream:
		return e.document.state == ended
	case r.dialect == dialect.Anthropic:
		return e.stopped
	default:
		return e.done || e.choices.allFinished()
	}
}

// Failed reports whether an error event or an error object came.
func (r *Reader) Failed() bool {
	return r.events.failed
}

// AtBoundary reports whether what passed so far ends between two events of a
// stream, or nothing passed yet: an event or comment of the gateway's own may
// be written here. It is false for what is no stream, and for a compressed one.
func (r *Reader) AtBoundary() bool {
	inMark := int(r.sniff.n)%len(byteOrderMark) != 0 // what the sniffer keeps of a declared stream is a mark
	return r.plainStream() && !inMark && r.events.atBoundary()
}

// TooLong reports whether a line of the stream was longer than [MaxLine].
func (r *Reader) TooLong() bool {
	return r.events.tooLong
}

// Blind reports whether the answer cannot be read, or not to its end: its
// encoding is unknown, its compression is damaged, it unpacks to more than
// an answer can be, or it is neither an event stream nor JSON. What was read before
// remains valid.
func (r *Reader) Blind() bool {
	return r.blind || !r.stream && r.events.document.state == broken
}

// plainStream reports whether the passing bytes themselves are the events.
func (r *Reader) plainStream() bool {
	return r.stream && r.packed == nil && !r.blind
}

// Estimate is the number of tokens that n bytes of text are taken for where
// nothing was reported: a third, rounded up (docs/reference/calls.md#estimates).
func Estimate(n int64) int64 {
	return n/3 + (n%3+2)/3
}
