// Package usage reads the usage of a model call from the bytes of a backend's answer while
// they pass to the caller. It also counts the delivered content. It stores neither the body
// nor an event. A state machine of fixed size reads the figures of the usage objects, and
// counts the text by which a call is charged if the backend reports nothing. The same machine
// counts the text of a request, for estimates; see request_text.go and request_members.go.
//
// The layers, each of which uses only those below it:
//
//	Trimmer   removes the usage chunk that the gateway asked for
//	Reader    one answer, in any format, plain or compressed
//	events    lines and fields of an event stream
//	document  one JSON text, by the tables in answer_members.go and usage_members.go
//	reports   the usage objects of an answer, combined
//	figures   the figures of one of them, converted to disjoint Tokens
//	report    the other values that decide the price: service tier, tools, passes
//
// [Outcome.Bill] then decides which tokens are charged. An answer is untrusted input. For
// any input, the memory of a Reader is constant, each figure is within [0, 2^53], and a
// malformed event affects no other event. The package imports nothing of the module.
package usage

import (
	"slices"
	"sync"
)

// MaxLine is the maximum length of a line of a stream, in bytes. The bound does not protect
// the memory, because the Reader does not store lines. A longer line is read to its end, and
// makes [Reader.TooLong] true.
const MaxLine = 16 << 20

// Reader reads one answer. Write takes every byte of the answer, in order and in parts of any
// size. The results may be read at any time. It is not safe for concurrent use.
type Reader struct {
	stream       bool
	sniff        sniffer // detects whether it is a stream
	events       events
	decompressor *decompressor // nil: the body is not compressed
	unreadable   bool          // the answer cannot be read, or not to its end
	unreadBytes  bool          // bytes were written while unreadable was set
	closed       bool
}

// pool reuses Readers, each of which needs a kilobyte.
var pool = sync.Pool{New: func() any { return new(Reader) }}

// New returns a Reader for an answer in the format f. Stream says that the answer is
// declared as a text/event-stream. Its first bytes decide whether it is an event stream or a
// sequence of JSON texts, because some servers send either with another media type. Encoding
// is the Content-Encoding of the answer: gzip and zstd are read, and any other makes the
// answer unreadable.
//
// The caller calls Release at the end.
func New(f *Format, stream bool, encoding string) *Reader {
	r := pool.Get().(*Reader)
	*r = Reader{stream: stream}
	r.events.reports.format, r.events.media = f, f.media()
	r.events.reset()
	decoders, known := decodersOf(encoding)
	switch {
	case !known:
		r.unreadable = true
	case decoders != nil:
		r.decompressor = newDecompressor(decoders, r.read)
	}
	return r
}

// format returns the format of the answer.
func (r *Reader) format() *Format { return r.events.reports.format }

// Write reads the next bytes of the answer. It does not retain p.
func (r *Reader) Write(p []byte) {
	switch {
	case r.closed || len(p) == 0:
		return
	case r.decompressor == nil && !r.unreadable:
		r.read(p)
		return
	case !r.unreadable && r.decompressor.write(p):
		return
	}
	// Bytes that cannot be read count as text, because nothing else is known about them.
	// If the compression is damaged within p, a part of p may have been read already.
	if r.unreadable || !r.Began() {
		r.events.delivered.text += int64(len(p))
	}
	r.unreadable, r.unreadBytes = true, true
}

// read reads the next decompressed bytes.
func (r *Reader) read(p []byte) {
	if !r.detect(p) {
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

// Close ends the answer, complete or not, and stops the decompressor. It must be called.
// The results can still be read.
func (r *Reader) Close() {
	r.closed = true
	if r.decompressor != nil {
		r.decompressor.stop()
	}
}

// Release closes the Reader and returns its memory to the pool. The Reader must not be used
// afterwards.
func (r *Reader) Release() {
	r.Close()
	pool.Put(r)
}

// Stream reports whether the answer is an event stream, judged by the bytes so far.
func (r *Reader) Stream() bool { return r.stream }

// Tokens returns the usage reported so far, and which side of the call was reported. A
// message_start reports the input, but its one token of output is not a report of the output.
// It is in Tokens.Output, and output is false until the stream reports more. Output is false
// again if content comes after the report.
func (r *Reader) Tokens() (t Tokens, input, output bool) {
	t, input, output = r.events.reports.tokens(r.TextBytes())
	r.format().Form.assign(&t, &r.events.reports.figures)
	return t, input, output
}

// Report returns the usage that was reported so far. It shares no memory with the Reader.
func (r *Reader) Report() Report {
	report := r.events.report.report()
	report.Tokens, report.Input, report.Output = r.Tokens()
	report.Tools = r.events.report.toolUses(report.Output)
	d := &r.events.delivered
	report.Searches = int64(d.searches)
	report.Declined = report.Declined && !d.any() && !d.contentBlock && !d.hasElement && !ranTools(report.Tools)
	if r.format().Form != TextForm {
		p := r.events.mediaSoFar()
		report.Images, report.ImagesListed = p.images(), p.listed
		report.Size, report.Quality, report.Seconds = p.size.String(), p.quality.String(), p.seconds
	}
	report.CountsTools = report.CountsTools || r.format().messages || r.events.report.isResponse()
	return report
}

// TextBytes returns the number of UTF-8 bytes of text delivered so far: content, reasoning,
// refusals, and the names and arguments of tools. Bytes that cannot be read count as text.
// See [Estimate].
func (r *Reader) TextBytes() int64 {
	return r.events.delivered.bytes()
}

// Continues makes Through count from how far the caller has read the text in earlier streams: bytes of
// the text, and the number of the event with the last of them, which is zero if it is not known. It must
// be called before Write.
func (r *Reader) Continues(bytes, event int64) {
	r.events.earlier = &earlier{bytes: bytes, through: event}
}

// Through returns how far the caller has read the text, with what was read before. Continues must have
// been called.
func (r *Reader) Through() (bytes, event int64) {
	d, e := &r.events.delivered, r.events.earlier
	more := int64(0)
	if !e.repeats() {
		more = d.textBytes() + d.names - e.repeated
	}
	return max(e.bytes+more, d.eventItems, d.items), e.event
}

// Media returns the delivered media: the bytes of speech in Base64, and the number of
// images.
func (r *Reader) Media() (speech, images int64) {
	return r.events.delivered.speech, int64(r.events.delivered.images) + r.events.mediaSoFar().images()
}

// Began reports whether content was delivered: in a stream an event with content, otherwise
// any byte of a body that is not an error. A message_start, a ping, an empty block of text
// or of a thought, and a chunk with only the role are not content; the name of a tool is.
// A byte that cannot be read counts as content, and so does an event of a recording's text or of
// speech in an unknown dialect.
func (r *Reader) Began() bool {
	d, f := &r.events.document, r.format()
	if r.unreadBytes || d.delivered.any() || d.hasPicture() {
		return true
	}
	if r.stream {
		return (f.Form == SpeechForm || f.Form == TranscriptForm) && r.Foreign()
	}
	return d.state != atStart && !d.failed
}

// Foreign reports whether the answer is a stream in another dialect than that of its route. Only its
// data lines can be read, so it is unknown what it delivered.
func (r *Reader) Foreign() bool {
	f, e := r.format(), &r.events
	return r.stream && e.foreignData && !e.failed && (f.chunks || f.Form != TextForm || e.done && !e.stopped)
}

// Page reports whether the answer is an HTML page, such as that of a proxy whose backend
// is down. An answer declared as HTML is a page unless it is JSON or an event stream. Any
// other answer is a page if it begins with a tag.
func (r *Reader) Page(declared bool) bool {
	switch first := r.sniff.first; {
	case r.stream:
		return false
	case declared:
		return (r.unreadBytes || first != 0) && first != '{' && first != '['
	default:
		return first == '<'
	}
}

// Shown reports whether any of the content itself was delivered: text, reasoning, arguments
// of a tool, or media. The start of a block and the name of a tool do not count. A byte that
// cannot be read counts as content.
func (r *Reader) Shown() bool {
	return r.unreadBytes || r.events.delivered.shown() || r.events.hasPicture()
}

// CostsUnseen reports whether the answer has content whose cost cannot be estimated from its
// text. This is reasoning, media, and content blocks other than text and calls of the
// caller's tools.
func (r *Reader) CostsUnseen() bool {
	d := &r.events.delivered
	return d.unseen || d.media() || d.signatures > 0 || slices.Max(d.reasoning[:]) > 0
}

// Finished reports whether the answer reached its end. The format decides what ends a stream. A JSON
// answer has ended if the JSON text is complete and only white space follows it.
func (r *Reader) Finished() bool {
	if r.stream {
		return r.format().ended(&r.events)
	}
	return r.events.document.state == ended
}

// Failed reports whether an error event or an error object was read.
func (r *Reader) Failed() bool {
	return r.events.failed
}

// AtBoundary reports whether the bytes so far end between two events of a stream, or there
// are none. The gateway may write its own event or comment here. It is false for an answer
// that is not a stream, and for a compressed one.
func (r *Reader) AtBoundary() bool {
	inBOM := int(r.sniff.n)%len(byteOrderMark) != 0 // in a declared stream, the sniffer only stores a byte order mark
	return r.plainStream() && !inBOM && r.events.atBoundary()
}

// TooLong reports whether a line of the stream was longer than [MaxLine].
func (r *Reader) TooLong() bool {
	return r.events.tooLong
}

// Unreadable reports whether the answer cannot be read, or not to its end. Its encoding is
// unknown, its compression is damaged, it is too long when decompressed, or it is neither an
// event stream nor JSON. What was read before remains valid.
func (r *Reader) Unreadable() bool {
	return r.unreadable || !r.stream && r.events.document.state == broken
}

// plainStream reports whether the answer is a stream without compression.
func (r *Reader) plainStream() bool {
	return r.stream && r.decompressor == nil && !r.unreadable
}

// Estimate returns the number of tokens for n bytes of text if nothing was reported: a third,
// rounded up (docs/reference/calls.md#estimates).
func Estimate(n int64) int64 {
	return n/3 + (n%3+2)/3
}
