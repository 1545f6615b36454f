package call

import (
	"errors"
	"io"
	"math/bits"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
)

// headroom is the free space before a body, in which edit inserts a member without copying
// the body.
const headroom = 64

// body is a request body in memory. It is read completely before the call is forwarded,
// because it must be checked and priced. Also, a body that is forwarded while the answer
// arrives can cut the answer.
//
// Each attempt to send it has a reader of its own, so each sends the whole body. A transport may
// still read after the answer is complete. So reads copy under a lock, and retire removes the buffer
// before it is used again. A transport that uses the bytes in place borrows the buffer; one that was
// not given back is never used again.
type body struct {
	mu     sync.Mutex
	buffer []byte // from a pool, unless it is small; headroom included
	start  int    // the offset of the JSON in buffer
	sends  int    // how often the body was replaced after it was sent; older readers are at their end
	lent   int    // how many readers have borrowed buffer

	first   reader  // saves an allocation
	handed  *reader // what the operator's routes receive
	knocked bool    // an empty read has reached handed

	memory bodymem.Claim // the capacity of buffer
}

// bytes returns the JSON. It is valid until retire.
func (b *body) bytes() []byte { return b.buffer[b.start:] }

// reader reads a body once. It implements transport.InMemory.
type reader struct {
	body     *body
	sends    int // of the body, when the reader was made
	off      int // how many bytes it has read
	borrowed bool
}

// newReader returns a reader of the whole body.
func (b *body) newReader() *reader {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &reader{body: b, sends: b.sends}
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(p) == 0 && r == b.handed:
		b.knocked = true
		return 0, nil
	case b.sends != r.sends || b.start+r.off >= len(b.buffer):
		return 0, io.EOF
	}
	n := copy(p, b.buffer[b.start+r.off:])
	r.off += n
	return n, nil
}

// Bytes borrows the body until Close.
func (r *reader) Bytes() []byte {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sends != r.sends {
		return nil
	}
	if !r.borrowed {
		r.borrowed = true
		b.lent++
	}
	return b.bytes()
}

// Close implements io.Closer. It only gives back what Bytes has borrowed: retire ends a body.
func (r *reader) Close() error {
	b := r.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.borrowed && b.sends == r.sends {
		b.lent--
	}
	r.borrowed = false
	return nil
}

// isBodyOf reports whether a request carries this body, whole and unread. The wrappers of
// reverse_proxy hide it, so an empty read knocks. If that does not arrive, or the length is another
// one, a handler has put another body in between.
func (b *body) isBodyOf(r *http.Request) bool {
	b.mu.Lock()
	whole := r.Body != nil && b.handed != nil && b.handed.off == 0 && b.handed.sends == b.sends && r.ContentLength == int64(len(b.bytes()))
	b.knocked = false
	b.mu.Unlock()
	if !whole {
		return false
	}
	_, err := r.Body.Read(nil)
	b.mu.Lock()
	defer b.mu.Unlock()
	return err == nil && b.knocked
}

// retire ends the body and gives its memory back.
func (b *body) retire() {
	b.mu.Lock()
	buffer := b.takeBuffer()
	b.mu.Unlock()
	putBuffer(buffer)
	b.memory.Release()
}

// takeBuffer removes the buffer and ends its readers. It returns the buffer if it may be used
// again, else nil. The mutex is held.
func (b *body) takeBuffer() (buffer []byte) {
	if b.lent == 0 {
		buffer = b.buffer
	}
	b.buffer, b.start, b.lent = nil, 0, 0
	b.sends++
	return buffer
}

// edit changes the JSON before it is sent. For a change near the beginning, it moves the few bytes
// before it within the headroom instead of copying the rest.
func (b *body) edit(e modelcall.Edit) {
	if more := len(e.Text) - (e.To - e.From); e.From <= headroom && b.start >= more {
		start := b.start - more
		copy(b.buffer[start:], b.buffer[b.start:b.start+e.From])
		copy(b.buffer[start+e.From:], e.Text)
		b.start = start
		return
	}
	json := b.bytes()
	buffer := getBuffer(len(json) + len(e.Text))[:0]
	buffer = append(append(append(buffer, json[:e.From]...), e.Text...), json[e.To:]...)
	putBuffer(b.buffer)
	b.buffer, b.start = buffer, 0
	b.memory.Hold(int64(cap(buffer)))
}

// replace changes the JSON after it was sent. A transport may still read the old one. So this makes
// another buffer, and ends the readers of the old one.
func (b *body) replace(e modelcall.Edit) {
	b.mu.Lock()
	json := b.bytes()
	buffer := append(getBuffer(headroom + len(json) + len(e.Text))[:headroom], json[:e.From]...)
	buffer = append(append(buffer, e.Text...), json[e.To:]...)
	old := b.takeBuffer()
	b.buffer, b.start = buffer, headroom
	b.mu.Unlock()
	putBuffer(old)
	b.memory.Hold(int64(cap(buffer)))
}

// send sets the checked body as the body of r.
func (b *body) send(r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.TransferEncoding = nil // a caller's chunks are not sent as chunks
	if b.handed == nil {
		b.handed = &b.first
	} else {
		b.handed = new(reader) // a transport may still use the one before
	}
	*b.handed = reader{body: b, sends: b.sends}
	r.Body = b.handed
	if length := len(b.bytes()); r.ContentLength != int64(length) {
		r.ContentLength = int64(length)
		r.Header["Content-Length"] = []string{strconv.Itoa(length)}
	}
}

// tooSlow is the error for a body that arrives too slowly.
var tooSlow = fault.New(fault.RequestTimeout, "the body did not arrive in time")

func tooLarge(limit int64) *fault.Fault {
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d MiB", limit>>20)
}

// readBody reads the whole body of r, at most limit bytes, within the limits of the
// configuration. Its memory counts toward the share of this user.
func readBody(w http.ResponseWriter, r *http.Request, runtime *caddymodule.Runtime, user string, limit int64, limits *caddymodule.Limits) (*body, *fault.Fault) {
	b := &body{start: headroom}
	runtime.Bodies.Users.Open(&b.memory, w, user, limits.Bodies())

	// The read deadline is only set when the time is over. Most bodies arrive with the
	// head, and a timer costs less than two changes of a deadline.
	guard := time.AfterFunc(time.Duration(limits.BodyRead), b.memory.Interrupt)
	f := b.fill(r, limit)
	if lost := b.memory.Complete(); lost != nil {
		f = lost
	}
	if !guard.Stop() {
		f = tooSlow // even if the body was just complete: the connection cannot be used again
	}
	if f != nil {
		b.retire()
		return nil, f
	}
	return b, nil
}

// The buffer sizes of a body at its beginning and after the first growth, in bytes. A
// Content-Length alone reserves little memory, because the body may never arrive.
const (
	firstBuffer  = 16 << 10
	secondBuffer = 256 << 10
)

// fill reads to the end of the body. After that the server detects a disconnect of the
// caller.
func (b *body) fill(r *http.Request, limit int64) *fault.Fault {
	most := headroom + int(limit) + 1 // with one more byte than allowed, a body is too large
	if r.ContentLength >= 0 {
		most = headroom + int(r.ContentLength)
	}
	var f *fault.Fault
	if r.ContentLength >= 0 && r.ContentLength <= smallCall {
		most++ // the last read finds the end without growing the buffer
		if f = b.memory.Resize(int64(most)); f == nil {
			b.buffer = make([]byte, headroom, most) // not from a pool: see unread
		}
	} else {
		f = b.grow(min(firstBuffer, most))
	}
	for f == nil {
		if len(b.buffer) == cap(b.buffer) {
			if r.ContentLength >= 0 && int64(len(b.buffer)-headroom) >= r.ContentLength {
				return nil
			}
			if f = b.grow(min(max(2*cap(b.buffer), secondBuffer), most)); f != nil {
				break
			}
		}
		room := b.buffer[len(b.buffer):cap(b.buffer)]
		n, err := r.Body.Read(room)
		b.buffer = b.buffer[:len(b.buffer)+n]
		b.memory.Received(n)
		if int64(len(b.buffer)-headroom) > limit {
			return tooLarge(limit)
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return tooSlow
		default:
			// The limit of an operator's request_body directive, or a caller
			// that disconnected before the end.
			if maxBytes := new(http.MaxBytesError); errors.As(err, &maxBytes) {
				return fault.New(fault.PayloadTooLarge, "the body is larger than %d bytes", maxBytes.Limit)
			}
			return fault.New(fault.InvalidJSON, "the body ended early")
		}
	}
	return f
}

// grow replaces the buffer with one of at least size bytes. It returns a fault if there is no
// memory for it.
func (b *body) grow(size int) *fault.Fault {
	if f := b.memory.Resize(int64(capacityOf(size))); f != nil {
		return f
	}
	larger := getBuffer(size)
	n := copy(larger, b.buffer)
	putBuffer(b.buffer)
	b.buffer = larger[:max(n, headroom)]
	return nil
}

// pools hold buffers of 4 KiB to 4 MiB, by powers of two. Larger ones are garbage collected.
var pools [11]sync.Pool

const smallestPool = 12 // 4 KiB

func poolOf(size int) int { return max(bits.Len(uint(size-1)), smallestPool) - smallestPool }

// capacityOf returns the capacity of the buffer that getBuffer returns for a size.
func capacityOf(size int) int {
	if i := poolOf(size); i < len(pools) {
		return 1 << (i + smallestPool)
	}
	return size
}

// getBuffer returns a buffer with a capacity of at least size.
func getBuffer(size int) []byte {
	i := poolOf(size)
	if i >= len(pools) {
		return make([]byte, size)
	}
	if buffer, ok := pools[i].Get().(*[]byte); ok {
		return *buffer
	}
	return make([]byte, 1<<(i+smallestPool))
}

// pooled reports whether a buffer belongs to a pool.
func pooled(buffer []byte) bool {
	c := cap(buffer)
	return c >= 1<<smallestPool && c&(c-1) == 0 && poolOf(c) < len(pools)
}

func putBuffer(buffer []byte) {
	if pooled(buffer) {
		buffer = buffer[:cap(buffer)]
		pools[poolOf(cap(buffer))].Put(&buffer)
	}
}
