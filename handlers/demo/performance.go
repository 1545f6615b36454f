package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// answer is what an endpoint decided to say: the whole as one value, or events.
type answer struct {
	rehearsal rehearsal
	whole     any           // the JSON answer
	events    func(*stream) // sends the answer as a stream instead; nil for JSON
	pieces    int           // how many pieces events sends
}

// performance puts one answer on the wire, with all that the prompt asked to be
// rehearsed.
type performance struct {
	ctx     context.Context
	w       http.ResponseWriter
	dialect *dialect
	pace    time.Duration
}

// give sends a. The error is that of a client that left before the first byte;
// when one leaves later, the handler is aborted as reverse_proxy does it, so that
// what was cut short never looks complete.
func (p *performance) give(a *answer) error {
	r := a.rehearsal
	if err := wait(p.ctx, r.slow); err != nil {
		return gone(err)
	}
	switch {
	case r.status != 0:
		p.refuse(rehearsed(r.status))
	case r.html:
		p.w.Header().Set("Content-Type", "text/html; charset=utf-8")
		p.send(http.StatusBadGateway, []byte(badGateway))
	case r.empty:
		p.send(http.StatusOK, nil)
	case a.events != nil:
		p.stream(a)
	default:
		p.whole(a)
	}
	return nil
}

// badGateway is a page as proxies send it.
const badGateway = `<html>
<head><title>502 Bad Gateway</title></head>
<body><h1>502 Bad Gateway</h1></body>
</html>
`

// whole sends a as JSON.
func (p *performance) whole(a *answer) {
	p.w.Header().Set(p.dialect.idHeader, newID("req_"))
	p.w.Header().Set("Content-Type", "application/json")
	body := encode(a.whole)
	if a.rehearsal.gzip {
		p.w.Header().Set("Content-Encoding", "gzip")
		body = compress(body)
	}
	if a.rehearsal.breakOff {
		p.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = p.w.Write(body[:len(body)/2])
		http.NewResponseController(p.w).Flush() // or the half would stay in the server's buffer
		panic(http.ErrAbortHandler)
	}
	p.send(http.StatusOK, body)
}

// refuse answers f in the dialect.
func (p *performance) refuse(f *refusal) {
	id := newID("req_")
	header := p.w.Header()
	header.Set(p.dialect.idHeader, id)
	header.Set("Content-Type", "application/json")
	if f.status == http.StatusTooManyRequests {
		header.Set("Retry-After", "1")
	}
	p.send(f.status, encode(p.dialect.errorBody(f, id)))
}

// send writes a whole body.
func (p *performance) send(status int, body []byte) {
	p.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	p.w.WriteHeader(status)
	if _, err := p.w.Write(body); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// stream sends a as server-sent events.
func (p *performance) stream(a *answer) {
	header := p.w.Header()
	header.Set(p.dialect.idHeader, newID("req_"))
	header.Set("Content-Type", "text/event-stream; charset=utf-8")
	header.Set("Cache-Control", "no-cache")
	p.w.WriteHeader(http.StatusOK)
	s := &stream{
		performance: p,
		control:     http.NewResponseController(p.w),
		rehearsal:   a.rehearsal,
		turn:        min(turnAfter, a.pieces),
	}
	a.events(s)
	if s.err != nil {
		panic(http.ErrAbortHandler)
	}
}

// gone is the error of a client that left before the first byte: status 499, as
// reverse_proxy reports it.
func gone(err error) error {
	return caddyhttp.Error(499, err)
}

// wait returns after d, or with an error as soon as ctx is done.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// encode writes v as the vendors do: compact, and without escaping for HTML.
func encode(v any) []byte {
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // only types of this package come here, and they can be encoded
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

func compress(body []byte) []byte {
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write(body) // a bytes.Buffer takes everything
	z.Close()
	return buf.Bytes()
}
