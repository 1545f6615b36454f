package call

import (
	"errors"
	"io"
	"math/bits"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// headroom is the space kept free before a body, so that a member can be put
// at its front without copying it: see request.askForUsage.
const headroom = 64

// body is a request body in memory. It is read whole before anything is
// forwarded, because it must be checked and priced, and because streaming it
// through while the answer comes can cut replies.
//
// A transport may still read it after the answer is complete; so reads copy
// under a lock, and retire takes the bytes away before they are used again.
type body struct {
	mu       sync.Mutex
	complete bool   // it has been read from the caller
	buffer   []byte // from a pool, unless it is small; headroom included
	start    int    // where the JSON begins in it
	off      int    // how far it has been read

	node  *caddymodule.Node
	taken int64 // of the node's budget
}

// bytes returns the JSON. It is valid until retire.
func (b *body) bytes() []byte { return b.buffer[b.start:] }

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.start+b.off >= len(b.buffer) {
		return 0, io.EOF
	}
	n := copy(p, b.buffer[b.start+b.off:])
	b.off += n
	return n, nil
}

// Close implements io.Closer. It does nothing: what ends a body is retire.
func (b *body) Close() error { return nil }

// retire ends the body and gives its memory back.
func (b *body) retire() {
	b.mu.Lock()
	buffer := b.buffer
	b.buffer, b.start = nil, 0
	b.mu.Unlock()
	putBuffer(buffer)
	b.node.ReserveBody(-b.taken, 0)
	b.taken = 0
}

// bodyBusy is the refusal when the budget for bodies in memory is used up.
var bodyBusy = fault.New(fault.Overloaded, "too many request bodies are being read; try again").After(time.Second)

// tooSlow is the refusal of a body that trickles.
var tooSlow = fault.New(fault.RequestTimeout, "the body did not arrive in time")

func tooLarge(limit int64) *fault.Fault {
	return fault.New(fault.PayloadTooLarge, "the body is larger than %d MiB", limit>>20)
}

// readBody reads the whole body of r, at most limit bytes, within the limits
// of the configuration. A body that is announced longer is refused unread.
func readBody(w http.ResponseWriter, r *http.Request, node *caddymodule.Node, limit int64, limits caddymodule.Limits) (*body, *fault.Fault) {
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	b := &body{node: node, start: headroom}
	if r.ContentLength >= 0 && r.ContentLength <= smallCall {
		b.buffer = make([]byte, headroom+int(r.ContentLength)+1) // of its own: see unread
	} else {
		b.buffer = getBuffer(headroom + int(firstBuffer(r.ContentLength)))
	}

	// The deadline is set when it is due, not before each body: most are there
	// with the head, and a timer costs less than two changes of a deadline. The
	// timer must not touch w later, when the handler may have returned.
	guard := time.AfterFunc(time.Duration(limits.BodyRead), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !b.complete {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		}
	})
	f := b.fill(r, limit, limits.BodyMemory)
	b.mu.Lock()
	b.complete = true
	b.mu.Unlock()
	if !guard.Stop() {
		f = tooSlow // also when the body was just complete: the connection is of no more use
	}
	if f != nil {
		b.retire()
		return nil, f
	}
	return b, nil
}

// firstBuffer is the memory that a body begins with. Only what has come counts
// against the budget, and little is taken for what was merely announced: else a
// few silent callers could hold all of it.
func firstBuffer(announced int64) int64 {
	if announced < 0 {
		return 16 << 10
	}
	return min(announced, 256<<10)
}

// fill reads to the end of the body, which also tells the server to watch for
// the caller leaving.
func (b *body) fill(r *http.Request, limit, budget int64) *fault.Fault {
	b.buffer = b.buffer[:headroom]
	for {
		if len(b.buffer) == cap(b.buffer) {
			if r.ContentLength >= 0 && int64(len(b.buffer)-headroom) >= r.ContentLength {
				return nil
			}
			b.grow()
		}
		room := b.buffer[len(b.buffer):cap(b.buffer)]
		n, err := r.Body.Read(room)
		b.buffer = b.buffer[:len(b.buffer)+n]
		if !b.node.ReserveBody(int64(n), budget) {
			return bodyBusy
		}
		b.taken += int64(n)
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
			// MaxBytesReader of an operator's request_body directive, or a
			// caller who left in the middle.
			if maxBytes := new(http.MaxBytesError); errors.As(err, &maxBytes) {
				return fault.New(fault.PayloadTooLarge, "the body is larger than %d bytes", maxBytes.Limit)
			}
			return fault.New(fault.InvalidJSON, "the body ended early")
		}
	}
}

// grow doubles the memory of a body that goes on.
func (b *body) grow() {
	larger := getBuffer(2 * cap(b.buffer))
	larger = append(larger[:0], b.buffer...)
	putBuffer(b.buffer)
	b.buffer = larger
}

// pools keep buffers of 4 KiB to 4 MiB, by powers of two. Larger ones are left
// to the collector.
var pools [11]sync.Pool

const smallestPool = 12 // 4 KiB

func poolOf(size int) int { return max(bits.Len(uint(size-1)), smallestPool) - smallestPool }

// getBuffer returns a buffer with the capacity of at least size.
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

// pooled tells whether a buffer is of a pool, and goes back there.
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
