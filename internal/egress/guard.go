package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// guardian permits the addresses of the public Internet: those outside of
// IANA's registries of special-purpose addresses. It does not restrict ports.
var guardian = ssrf.New(ssrf.WithAnyPort())

// Limits of a connection. The caller limits the time of the answer.
const (
	dialTimeout      = 10 * time.Second
	handshakeTimeout = 10 * time.Second
	idleTimeout      = 30 * time.Second
	maxHeaderBytes   = 64 << 10
)

// Guard connects only to public addresses and to those that the operator
// permits. Its methods may be called concurrently.
type Guard struct {
	allow    Allowed
	resolver *net.Resolver
}

// New returns a guard that also connects to the allowed destinations. It resolves
// names with resolver; nil is the system's resolver.
func New(allow Allowed, resolver *net.Resolver) *Guard {
	return &Guard{allow: allow, resolver: resolver}
}

// Client returns a client that connects as Dial does. It ignores proxies of the
// environment, and returns redirects instead of following them. It has its own
// connection pool. It has no time limit, so requests need a context with a deadline.
func (g *Guard) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            g.Dial,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // bodies are copied unchanged
			TLSHandshakeTimeout:    handshakeTimeout,
			IdleConnTimeout:        idleTimeout,
			MaxIdleConnsPerHost:    2,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Dial connects to address, host:port, over network, which is tcp, tcp4 or
// tcp6. It checks each address of the host just before connecting to it. Every
// error is an [Unreachable].
func (g *Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := splitHostPort(address)
	if err != nil {
		return nil, &Unreachable{err}
	}
	named := g.allow.name(host, port)
	dialer := net.Dialer{
		Timeout:  dialTimeout,
		Resolver: g.resolver,
		Control: func(network, address string, conn syscall.RawConn) error {
			return g.checkSocket(network, address, named, conn)
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, &Unreachable{err}
	}
	return conn, nil
}

// checkSocket returns an error if a socket must not connect to its address. named means
// that the operator permits the host by its name, so any address is allowed.
func (g *Guard) checkSocket(network, address string, named bool, conn syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%s is not TCP", network)
	}
	if named {
		return nil
	}
	if peer, err := netip.ParseAddrPort(address); err == nil && g.allow.address(peer) {
		return nil
	}
	return guardian.Safe(network, address, conn)
}

// Unreachable is the reason why there is no connection. Its text is the same
// for a blocked address, a closed port and a name without an address. The
// difference would let the user map the operator's network.
type Unreachable struct {
	// Cause is the actual reason, for the operator's log only.
	Cause error
}

// Error implements error. It does not contain the cause.
func (*Unreachable) Error() string { return "the address cannot be reached" }

// Unwrap returns the cause, so that errors.Is finds the end of a context.
func (u *Unreachable) Unwrap() error { return u.Cause }
