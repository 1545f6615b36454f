package transport

import (
	"slices"
	"sync"
	"time"
)

// key says for which requests a connection can be used.
type key struct {
	network string
	address string
	server  string // the name in the TLS handshake; empty: no TLS
}

// pool holds the idle connections. The last one in is the first one out, so that the connections
// beyond the present load become old and are closed. It is safe for concurrent use.
type pool struct {
	limits  func() (total, perKey int) // total 0: unlimited
	timeout time.Duration              // 0 or less: a connection may be idle for ever

	mu     sync.Mutex
	idle   map[key][]*conn // the oldest first
	count  int
	timer  *time.Timer // of the next sweep; nil: none is due
	closed bool
}

func newPool(limits func() (total, perKey int), timeout time.Duration) *pool {
	return &pool{limits: limits, timeout: timeout, idle: map[key][]*conn{}}
}

// take returns an idle connection, which then belongs to the caller, or nil. Connections on which
// anything has arrived, bytes or the end, are closed.
func (p *pool) take(k key) *conn {
	for {
		c := p.pop(k)
		if c == nil || c.quiet() {
			return c
		}
		c.close()
	}
}

func (p *pool) pop(k key) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[k]
	last := len(list) - 1
	if last < 0 {
		return nil
	}
	c := list[last]
	list[last] = nil
	p.idle[k] = list[:last]
	if last == 0 && p.timeout <= 0 {
		delete(p.idle, k) // no sweep will
	}
	p.count--
	return c
}

// put gives a connection to the pool. The caller must not use it afterwards.
func (p *pool) put(c *conn) {
	c.reset()
	if !p.push(c) {
		c.close()
	}
}

func (p *pool) push(c *conn) bool {
	c.reused = true
	c.since = time.Now()
	total, perKey := p.limits()
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[c.key]
	if p.closed || perKey > 0 && len(list) >= perKey || total > 0 && p.count >= total {
		return false
	}
	p.idle[c.key] = append(list, c)
	p.count++
	if p.timeout > 0 && p.timer == nil {
		p.timer = time.AfterFunc(p.timeout, p.sweep)
	}
	return true
}

// sweep closes the connections that were idle for too long.
func (p *pool) sweep() {
	for _, c := range p.expired(time.Now()) {
		c.close()
	}
}

// expired removes and returns the connections that were idle for too long, and sets the timer for
// the next one.
func (p *pool) expired(now time.Time) (old []*conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.timer = nil
	next := time.Duration(-1)
	for k, list := range p.idle {
		n := 0
		for n < len(list) && now.Sub(list[n].since) >= p.timeout {
			n++
		}
		old = append(old, list[:n]...)
		rest := slices.Clone(list[n:]) // the array of list keeps no closed connections alive
		if len(rest) == 0 {
			delete(p.idle, k)
			continue
		}
		p.idle[k] = rest
		if wait := p.timeout - now.Sub(rest[0].since); next < 0 || wait < next {
			next = wait
		}
	}
	p.count -= len(old)
	if next >= 0 {
		p.timer = time.AfterFunc(next, p.sweep)
	}
	return old
}

// close closes the idle connections, and all that are put later.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.closed, p.idle, p.count = true, map[key][]*conn{}, 0
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, list := range idle {
		for _, c := range list {
			c.close()
		}
	}
}
