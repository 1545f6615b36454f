// Package transport is the Caddy module http.reverse_proxy.transport.modelgate: the transport of
// reverse_proxy with a shorter way for plain HTTP/1.1. It knows nothing of accounts or model calls,
// and any configuration of Caddy can use it.
//
// [Transport] decides for each request. On the short way, one goroutine sends the request and reads
// its answer: there is no goroutine for each connection, and the head goes out with the body in one
// write. All other requests take the embedded transport of Caddy.
//
// One rule stands above all others: no caller ever receives a byte of another caller's answer. So
// a connection has one owner at a time, an exchange or the pool. It returns to the pool only after an
// answer that was complete, well-formed and read to its end. In any doubt it is closed.
package transport

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func init() {
	caddy.RegisterModule(Transport{})
}

// Transport is the transport `http` of Caddy with a shorter way for HTTP/1.1. It has the same
// configuration. Requests that the short way does not cover are sent by the transport `http`.
type Transport struct {
	reverseproxy.HTTPTransport

	plain  bool // http:// may take the short way
	secure bool // https:// may take it
	pool   *pool
}

// InMemory is implemented by a request body whose bytes are in memory. The transport may then send
// it from there, whatever its size, and repeat it.
type InMemory interface {
	// Bytes returns the whole body. The transport reads it, without calling Read, until it
	// closes the body. It closes the body before its RoundTrip returns an error, and before the
	// Close of the answer's body returns.
	Bytes() []byte
}

// CaddyModule returns the Caddy module information.
func (Transport) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "http.reverse_proxy.transport.modelgate",
		New: func() caddy.Module { return new(Transport) },
	}
}

// Provision sets up the embedded transport and the pool of connections.
func (t *Transport) Provision(ctx caddy.Context) error {
	if err := t.HTTPTransport.Provision(ctx); err != nil {
		return err
	}
	h := t.HTTPTransport.Transport
	t.pool = newPool(func() (int, int) { return h.MaxIdleConns, h.MaxIdleConnsPerHost }, h.IdleConnTimeout)
	t.plain = canPeek && !h.DisableKeepAlives && t.ProxyProtocol == "" && t.MaxConnsPerHost == 0 &&
		!slices.Contains(t.Versions, "h2c") && !slices.Contains(t.Versions, "3") &&
		(t.Compression == nil || !*t.Compression) // an explicit `true` asks for gzip
	// The embedded transport sets a deadline before each read if it has a timeout for reads. It
	// would replace the one with which settled looks into a TLS connection.
	t.secure = t.plain && t.TLS != nil && len(t.Versions) == 1 && t.Versions[0] == "1.1" &&
		h.DialTLSContext == nil && !strings.Contains(t.TLS.ServerName, "{") && t.ReadTimeout <= 0
	return nil
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.SetScheme(req)
	if k, ok := t.shortWay(req); ok {
		return t.send(req, k)
	}
	return t.HTTPTransport.RoundTrip(req)
}

// Cleanup closes the idle connections. Those with an answer under way are closed at its end.
func (t *Transport) Cleanup() error {
	if t.pool != nil {
		t.pool.close()
	}
	return t.HTTPTransport.Cleanup()
}

// maxCopied is the maximum length of a body that is copied before it is sent, in bytes. Longer
// bodies take the short way if they are in memory.
const maxCopied = 64 << 10

// longWay lists the headers that change how a message is sent, or what follows it.
var longWay = []string{"Connection", "Expect", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// shortWay reports whether a request may take the short way, and on connections with which key.
func (t *Transport) shortWay(req *http.Request) (key, bool) {
	if req.URL == nil || req.Header == nil || req.URL.Host == "" || req.Method == http.MethodConnect ||
		req.Close || req.Cancel != nil || len(req.Trailer) > 0 || len(req.TransferEncoding) > 0 { //nolint:staticcheck // whoever sets Cancel must be served
		return key{}, false
	}
	for _, name := range longWay {
		if _, ok := req.Header[name]; ok {
			return key{}, false
		}
	}
	if !t.coversBody(req) {
		return key{}, false
	}
	dial, ok := reverseproxy.GetDialInfo(req.Context())
	if !ok || dial.Network != "unix" && !strings.HasPrefix(dial.Network, "tcp") {
		return key{}, false
	}
	k := key{network: dial.Network, address: dial.Address}
	switch req.URL.Scheme {
	case "http":
		ok = t.plain
	case "https":
		ok = t.secure
		if k.server = t.serverName(); k.server == "" {
			k.server = req.URL.Hostname()
		}
		ok = ok && k.server != "" // such as `:8443`: a key without a name is one without TLS
	default:
		ok = false
	}
	if !ok || !isASCII(req.Host) || !isASCII(req.URL.Host) || !isASCII(k.server) {
		return key{}, false
	}
	if proxy := t.HTTPTransport.Transport.Proxy; proxy != nil {
		if through, err := proxy(req); through != nil || err != nil {
			return key{}, false
		}
	}
	return k, true
}

func (t *Transport) serverName() string {
	if c := t.HTTPTransport.Transport.TLSClientConfig; c != nil {
		return c.ServerName
	}
	return ""
}

// coversBody reports whether the short way can send the body of req: none, one of known and small
// length, or one in memory.
func (t *Transport) coversBody(req *http.Request) bool {
	if req.Body == nil || req.Body == http.NoBody {
		return req.ContentLength == 0
	}
	if body, ok := req.Body.(InMemory); ok && int64(len(body.Bytes())) == req.ContentLength {
		return req.ContentLength > 0
	}
	return req.ContentLength > 0 && req.ContentLength <= maxCopied
}

// headLimit returns the maximum size of the head of an answer, interim answers included, in bytes.
func (t *Transport) headLimit() int {
	if limit := t.HTTPTransport.Transport.MaxResponseHeaderBytes; limit > 0 {
		return int(limit)
	}
	return 10 << 20 // that of net/http
}

func (t *Transport) headTimeout() time.Duration {
	return t.HTTPTransport.Transport.ResponseHeaderTimeout
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 || s[i] == '%' { // an IPv6 zone is not sent
			return false
		}
	}
	return true
}

// Interface guards
var (
	_ caddy.Provisioner                                = (*Transport)(nil)
	_ caddy.CleanerUpper                               = (*Transport)(nil)
	_ caddyfile.Unmarshaler                            = (*Transport)(nil)
	_ http.RoundTripper                                = (*Transport)(nil)
	_ reverseproxy.TLSTransport                        = (*Transport)(nil)
	_ reverseproxy.H2CTransport                        = (*Transport)(nil)
	_ reverseproxy.HealthCheckSchemeOverriderTransport = (*Transport)(nil)
	_ reverseproxy.ProxyProtocolTransport              = (*Transport)(nil)
)
