package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// bufferSize is the size of the read buffer of a connection, in bytes.
const bufferSize = 4 << 10

// conn is a connection to an upstream. It belongs to one exchange or to the pool, and only the
// owner uses it. Only abort may be called by others.
type conn struct {
	key    key
	conn   net.Conn // the one to read from and to write to
	socket net.Conn // below TLS; conn without it
	tls    *tls.ConnectionState

	raw     syscall.RawConn
	look    func(fd uintptr) // sets isQuiet; made once, because each closure is an allocation
	isQuiet bool

	reused bool      // it has carried an exchange before
	since  time.Time // when it was given to the pool

	buf  []byte // what was read is buf[r:w]
	r, w int
}

// The errors of timeouts. Their Timeout method makes reverse_proxy answer 504.
var (
	errHeadTimeout      = timeoutError("timeout awaiting response headers")
	errHandshakeTimeout = timeoutError("TLS handshake timeout")
)

type timeoutError string

func (e timeoutError) Error() string { return "transport: " + string(e) }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return true }

// dial opens a connection for req. An error before the connection stood is Caddy's DialError,
// after which reverse_proxy tries again.
func (t *Transport) dial(req *http.Request, k key) (*conn, error) {
	ctx := req.Context()
	socket, err := t.HTTPTransport.Transport.DialContext(ctx, k.network, k.address)
	if err != nil {
		if ctx.Err() != nil {
			// Caddy counts no failure against the upstream and does not try again.
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	c := &conn{key: k, conn: socket, socket: socket, buf: make([]byte, max(bufferSize, t.ReadBufferSize))}
	if s, ok := socket.(syscall.Conn); ok {
		if c.raw, err = s.SyscallConn(); err != nil {
			c.raw = nil // it is not used again
		}
	}
	c.look = func(fd uintptr) { c.isQuiet = isQuiet(fd) }
	if k.server == "" {
		return c, nil
	}
	if err := t.handshake(ctx, c); err != nil {
		c.abort()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, err
	}
	return c, nil
}

// handshake puts TLS on a connection.
func (t *Transport) handshake(ctx context.Context, c *conn) error {
	h := t.HTTPTransport.Transport
	config := h.TLSClientConfig.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	if config.ServerName == "" {
		config.ServerName = c.key.server
	}
	limited := ctx
	if h.TLSHandshakeTimeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, h.TLSHandshakeTimeout)
		defer cancel()
	}
	conn := tls.Client(c.socket, config)
	if err := conn.HandshakeContext(limited); err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			return errHandshakeTimeout
		}
		return err
	}
	state := conn.ConnectionState()
	c.conn, c.tls = conn, &state
	return nil
}

// quiet reports whether an idle connection is open and nothing has arrived on it.
func (c *conn) quiet() bool {
	c.isQuiet = false
	return c.raw.Control(c.look) == nil && c.isQuiet
}

// settled reports whether nothing of the connection is left unread in memory. It may be used
// again only then.
func (c *conn) settled() bool {
	if c.raw == nil || c.r != c.w {
		return false
	}
	if c.tls == nil {
		return true
	}
	// TLS reads ahead, and quiet does not see what it holds. A read after its deadline
	// returns that, and takes nothing from the socket.
	if c.conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		return false
	}
	n, err := c.conn.Read(c.buf[:1])
	var timeout net.Error
	return n == 0 && errors.As(err, &timeout) && timeout.Timeout() && c.conn.SetReadDeadline(time.Time{}) == nil
}

// reset forgets what was read. A buffer that a long head has enlarged is replaced.
func (c *conn) reset() {
	c.r, c.w = 0, 0
	if len(c.buf) > 4*bufferSize {
		c.buf = make([]byte, bufferSize)
	}
}

// close ends a connection that belongs to the caller.
func (c *conn) close() { _ = c.conn.Close() }

// abort ends a connection at once, while its owner may be reading and writing.
func (c *conn) abort() { _ = c.socket.Close() }

// fill waits for bytes and appends them to the buffer. The buffer grows up to limit bytes.
func (c *conn) fill(limit int) error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.buf) {
		buf := c.buf
		if c.r == 0 {
			if len(buf) >= limit {
				return errTooLong
			}
			buf = make([]byte, min(2*len(buf), max(limit, bufferSize)))
		}
		c.w = copy(buf, c.buf[c.r:c.w])
		c.r, c.buf = 0, buf
	}
	n, err := c.conn.Read(c.buf[c.w:])
	c.w += n
	switch {
	case n > 0:
		return nil // an error comes again
	case err == nil:
		return io.ErrNoProgress
	}
	return err
}

// write sends a head and a body in one write. It returns how many bytes were sent.
func (c *conn) write(head, body []byte) (int, error) {
	if len(body) == 0 {
		return c.conn.Write(head)
	}
	switch c.conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		parts := net.Buffers{head, body}
		n, err := parts.WriteTo(c.conn)
		return int(n), err
	}
	// Under TLS there is no such write, and Caddy's wrapper of a connection sets a deadline for
	// each of these.
	sent, err := c.conn.Write(head)
	for err == nil && len(body) > 0 {
		var n int
		n, err = c.conn.Write(body[:min(len(body), maxCopied)])
		body = body[n:]
		sent += n
	}
	return sent, err
}
