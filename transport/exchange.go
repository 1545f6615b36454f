package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// exchange is one request on one connection, and the body of its answer.
//
// Three parties may act at once: the reader of the answer, the goroutine that sends a large body,
// and whoever ends the exchange early: a cancelled context, a timeout, or Close. Only the reader
// releases the connection. The others may only abort it, under the lock that release takes as
// well, so nobody closes a connection that already serves another request.
type exchange struct {
	resp http.Response
	pool *pool

	reading  sync.Mutex // guards conn to err
	conn     *conn      // nil: released
	framing  framing
	left     int64 // bytes until the end of the body, or of the chunk
	part     chunkPart
	trailers []byte
	keep     bool  // the connection may be used again after a clean end
	err      error // of all further reads

	owning sync.Mutex
	owned  *conn // nil: released
	cause  error // why the connection was aborted
	timer  *time.Timer
	headed bool // the head has arrived, or will not be waited for

	stop     func() bool   // ends the watch of the context; may be nil
	sent     chan struct{} // closed when the goroutine that sends the body has ended; nil: none
	sendErr  error         // of the request; valid when it was sent
	finishes atomic.Int32  // of the two that end last: the sending, and the handing over of the answer
}

// send sends req and returns its answer. A connection from the pool may have been closed by the
// upstream meanwhile; then a request that may be repeated is sent once more, on a new connection.
func (t *Transport) send(req *http.Request, k key) (*http.Response, error) {
	ctx := req.Context()
	if ctx.Err() != nil {
		closeBody(req)
		return nil, context.Cause(ctx)
	}
	m, err := newMessage(req)
	if err != nil {
		closeBody(req)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	c := t.pool.take(k)
	for {
		if c == nil {
			if c, err = t.dial(req, k); err != nil {
				break
			}
		}
		var e *exchange
		var again bool
		if e, again, err = t.exchange(req, m, c); err == nil {
			if e.sent == nil {
				m.free()
				closeBody(req)
			} else {
				e.finish(req)
			}
			return &e.resp, nil
		}
		if !again {
			break
		}
		c = nil
	}
	m.free() // an exchange that failed has waited for its sending
	closeBody(req)
	return nil, err
}

func closeBody(req *http.Request) {
	if req.Body != nil {
		_ = req.Body.Close()
	}
}

// exchange sends a message and reads the head of its answer. If that fails, nothing touches the
// message any more, and again reports whether it may be sent on another connection.
func (t *Transport) exchange(req *http.Request, m *message, c *conn) (_ *exchange, again bool, err error) {
	e := &exchange{pool: t.pool, conn: c, owned: c}
	e.resp.Request, e.resp.TLS = req, c.tls
	reused := c.reused
	ctx := req.Context()
	if ctx.Done() != nil {
		e.stop = context.AfterFunc(ctx, func() { e.abort(context.Cause(ctx)) })
	}
	trace := httptrace.ContextClientTrace(ctx)
	if trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.conn, Reused: reused, WasIdle: reused})
	}
	if err := context.Cause(ctx); err != nil { // not a byte goes out
		e.fail(err)
		return nil, false, e.err
	}
	timeout := t.headTimeout()
	if m.inBackground() {
		e.sent = make(chan struct{})
		go func() {
			defer close(e.sent)
			n, err := c.write(m.head, m.body)
			e.wrote(trace, timeout, n, err)
			if err != nil && !isHangUp(err) {
				e.abort(err) // the reader would wait for an answer that never comes
			}
			e.finish(req)
		}()
	} else {
		n, err := c.write(m.head, m.body)
		e.wrote(trace, timeout, n, err)
		if err != nil && (!isHangUp(err) || reused && n == 0) {
			aborted := e.fail(err)
			// Not a byte was sent, so no method is run twice.
			return nil, reused && n == 0 && c.tls == nil && isHangUp(err) && !aborted, e.err
		}
	}
	got, err := e.readAnswer(trace, t.headLimit())
	if err == nil {
		return e, false, nil
	}
	aborted := e.fail(err)
	return nil, reused && !got && !aborted && isHangUp(err) && mayRepeat(req), e.err
}

// wrote notes that the request was sent, or why not.
func (e *exchange) wrote(trace *httptrace.ClientTrace, timeout time.Duration, n int, err error) {
	e.sendErr = err
	if trace != nil && trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{Err: err})
	}
	if timeout <= 0 || err != nil {
		return
	}
	e.owning.Lock()
	defer e.owning.Unlock()
	if !e.headed {
		e.timer = time.AfterFunc(timeout, func() {
			if !e.isHeaded() {
				e.abort(errHeadTimeout)
			}
		})
	}
}

func (e *exchange) isHeaded() bool {
	e.owning.Lock()
	defer e.owning.Unlock()
	return e.headed
}

// finish is called twice: when the body was sent, and when the answer was handed over. The second
// call closes the body. If the exchange fails, it is called once, and send closes the body.
func (e *exchange) finish(req *http.Request) {
	if e.finishes.Add(1) == 2 {
		closeBody(req)
	}
}

// isHangUp reports whether the upstream has ended the connection. An answer may still be readable.
func isHangUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// readAnswer reads up to the head of the final answer. got reports whether a byte of any answer
// has arrived.
func (e *exchange) readAnswer(trace *httptrace.ClientTrace, limit int) (got bool, err error) {
	c := e.conn
	if err := c.fill(limit); err != nil {
		return false, err
	}
	if trace != nil && trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	for keep := true; ; {
		head, err := c.readHead(limit)
		if err != nil {
			return true, err
		}
		limit -= len(head)
		if err := parseHead(head, &e.resp); err != nil {
			return true, err
		}
		var length int64
		e.framing, length, e.keep, err = frame(&e.resp, e.resp.Request.Method)
		if err != nil {
			return true, err
		}
		keep = keep && e.keep
		if e.resp.StatusCode >= 200 {
			e.left, e.keep = length, keep
			break
		}
		if err := e.interim(trace); err != nil {
			return true, err
		}
	}
	e.owning.Lock()
	e.headed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.owning.Unlock()
	e.resp.Body = e
	if e.framing == noBody {
		e.resp.Body = http.NoBody
		e.err = io.EOF
		e.release(true)
	}
	return true, nil
}

var (
	errSwitched = errors.New("transport: the upstream switched to another protocol")
	errInterim  = errors.New("transport: malformed interim answer")
)

// interim reports an answer with a status below 200, and forgets it.
func (e *exchange) interim(trace *httptrace.ClientTrace) error {
	code := e.resp.StatusCode
	length := e.resp.Header["Content-Length"]
	switch {
	case code == http.StatusSwitchingProtocols:
		return errSwitched // nobody asked for it
	case e.resp.TransferEncoding != nil || length != nil && length[0] != "0":
		return errInterim // a body may follow
	}
	if trace != nil && trace.Got100Continue != nil && code == http.StatusContinue {
		trace.Got100Continue()
	}
	if trace != nil && trace.Got1xxResponse != nil {
		if err := trace.Got1xxResponse(code, textproto.MIMEHeader(e.resp.Header)); err != nil {
			return err
		}
	}
	e.resp = http.Response{Request: e.resp.Request, TLS: e.resp.TLS}
	return nil
}

// Read implements io.Reader. At the end of the body it releases the connection.
func (e *exchange) Read(p []byte) (n int, err error) {
	e.reading.Lock()
	defer e.reading.Unlock()
	switch {
	case e.err != nil:
		return 0, e.err
	case len(p) == 0:
		return 0, nil
	}
	switch e.framing {
	case byLength:
		n, err = e.readLeft(p)
		if err == nil && e.left == 0 {
			err = io.EOF
		}
	case byChunks:
		n, err = e.readChunks(p)
	default:
		n, err = e.conn.read(p)
	}
	if err == io.EOF { //nolint:errorlint // the end of the body; that of the connection is unexpected
		e.err = io.EOF
		e.release(true)
	} else if err != nil {
		e.fail(err)
	}
	return n, e.err
}

// readLeft reads bytes of the body or the chunk, and never more than belong to it. The end of the
// connection is io.ErrUnexpectedEOF.
func (e *exchange) readLeft(p []byte) (int, error) {
	n, err := e.conn.read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == nil || n > 0 {
		return n, nil
	}
	return 0, unexpected(err)
}

// unexpected returns the error for the end of a connection in the middle of an answer. It is never
// io.EOF, which would pass for the end of the body.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// read reads what is in the buffer, else from the connection: large parts at once, small ones
// through the buffer.
func (c *conn) read(p []byte) (int, error) {
	if c.r == c.w {
		if len(p) >= len(c.buf) {
			return c.conn.Read(p)
		}
		if err := c.fill(len(c.buf)); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	return n, nil
}

// Close implements io.Closer. Before the end of the body it closes the connection. It may be
// called while another goroutine reads.
func (e *exchange) Close() error {
	e.abort(http.ErrBodyReadAfterClose)
	e.reading.Lock()
	defer e.reading.Unlock()
	if e.err == nil {
		e.release(false)
	}
	e.err = http.ErrBodyReadAfterClose
	return nil
}

// abort closes the connection of an exchange that still has it. The reader then fails with cause.
func (e *exchange) abort(cause error) {
	e.owning.Lock()
	defer e.owning.Unlock()
	if e.owned != nil && e.cause == nil {
		e.cause = unexpected(cause)
		e.owned.abort()
	}
}

// fail ends the exchange with an error. It reports whether the exchange was aborted; then the
// error is the cause of that.
func (e *exchange) fail(err error) (aborted bool) {
	e.release(false)
	switch {
	case e.cause != nil: // nobody sets it after release
		err, aborted = e.cause, true
	case e.framing == noBody && e.resp.Body == nil && isHangUp(e.sendErr):
		err = e.sendErr // there was no answer because of it; another error may come from release
	}
	e.err = unexpected(err)
	return aborted
}

// release gives the connection to the pool after a clean end, else it closes it. Then it waits
// until the body of the request is not used any more.
func (e *exchange) release(clean bool) {
	c := e.conn
	e.conn = nil
	if c == nil {
		return
	}
	clean = clean && e.keep && e.allSent() && c.settled()
	e.owning.Lock()
	e.owned = nil
	e.headed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	clean = clean && e.cause == nil
	e.owning.Unlock()
	if e.stop != nil {
		e.stop()
	}
	if clean {
		e.pool.put(c)
		return
	}
	c.close()
	if e.sent != nil {
		<-e.sent
	}
}

// allSent reports whether the request was sent whole.
func (e *exchange) allSent() bool {
	if e.sent != nil {
		select {
		case <-e.sent:
		default:
			return false
		}
	}
	return e.sendErr == nil
}
