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

// guardian knows the addresses of the public Internet: those outside of IANA's
// registries of special purposes. It leaves ports to their owners.
var guardian = ssrf.New(ssrf.WithAnyPort())

// Time limits of a connection that is being made. How long an answer may take
// is for the caller to say.
const (
	dialPatience      = 10 * time.Second
	handshakePatience = 10 * time.Second
	idlePatience      = 30 * time.Second
	maxHeaderBytes    = 64 << 10
)

// Guard connects to public addresses and to those that the operator allows, and
// to no other. It is safe for concurrent use.
type Guard struct {
	allow    Allowed
	resolver *net.Resolver
}

// New returns a guard that also connects to what is allowed, and finds
// addresses by resolver; nil is the machine's own.
func New(allow Allowed, resolver *net.Resolver) *Guard {
	return &Guard{allow: allow, resolver: resolver}
}

// Client returns a client that connects as Dial does, uses no proxy whatever
// the environment says, and hands a redirect to its caller as the answer. It
// has a pool of connections of its own, and no limit of time: give the request
// a context with one.
func (g *Guard) Client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  nil,
			DialContext:            g.Dial,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true, // what is copied is copied as it is
			TLSHandshakeTimeout:    handshakePatience,
			IdleConnTimeout:        idlePatience,
			MaxIdleConnsPerHost:    2,
			MaxResponseHeaderBytes: maxHeaderBytes,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Dial connects to address, host:port, over network, which is tcp, tcp4 or
// tcp6. Each address that the host stands for is judged when the connection to
// it is about to be made. Whatever prevents one, the error is an [Unreachable].
func (g *Guard) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := splitHostPort(address)
	if err != nil {
		return nil, &Unreachable{err}
	}
	named := g.allow.name(host, port)
	dialer := net.Dialer{
		Timeout:  dialPatience,
		Resolver: g.resolver,
		Control: func(network, address string, conn syscall.RawConn) error {
			return g.judge(network, address, named, conn)
		},
	}
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, &Unreachable{err}
	}
	return conn, nil
}

// judge refuses the address of a socket that is about to connect. Named tells
// that the operator allowed its name, whatever address that has.
func (g *Guard) judge(network, address string, named bool, conn syscall.RawConn) error {
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

// Unreachable is why there is no connection. It reads the same for an address
// that is blocked, a port that is closed and a name without an address, since
// the difference would map the operator's network for whoever gave the address.
type Unreachable struct {
	// Cause is the true reason, for the operator's log alone.
	Cause error
}

// Error implements error, without the cause.
func (*Unreachable) Error() string { return "the address cannot be reached" }

// Unwrap returns the cause, so that the end of a context is known as such.
func (u *Unreachable) Unwrap() error { return u.Cause }
