package egress_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"code.dny.dev/ssrf"

	"github.com/caddy-modelgate/modelgate/internal/egress"
)

// forbiddenServer is a server on loopback that counts connections.
type forbiddenServer struct {
	*httptest.Server
	port        string
	connections atomic.Int64
}

func newForbiddenServer(t *testing.T, answer http.HandlerFunc) *forbiddenServer {
	t.Helper()
	var tr forbiddenServer
	tr.Server = httptest.NewUnstartedServer(answer)
	tr.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			tr.connections.Add(1)
		}
	}
	tr.Start()
	t.Cleanup(tr.Close)
	_, tr.port, _ = net.SplitHostPort(tr.Listener.Addr().String())
	return &tr
}

func ok(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

// answering returns a resolver with one server, whose n-th answer for the
// address of any name is answer(n).
func answering(answer func(n int64) string) *net.Resolver {
	var queries atomic.Int64
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go serveDNS(server, func() string { return answer(queries.Add(1)) })
		return client, nil
	}}
}

// serveDNS answers the questions of a TCP connection (RFC 1035 section 4): with
// one address for A, and with none for other types.
func serveDNS(conn net.Conn, answer func() string) {
	defer conn.Close()
	from := bufio.NewReader(conn)
	for {
		var length uint16
		if binary.Read(from, binary.BigEndian, &length) != nil {
			return
		}
		query := make([]byte, length)
		if _, err := io.ReadFull(from, query); err != nil {
			return
		}
		end := 12
		for query[end] != 0 {
			end += 1 + int(query[end])
		}
		end += 5 // the root, type and class
		reply := append([]byte(nil), query[:end]...)
		copy(reply[2:], []byte{0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0})
		if binary.BigEndian.Uint16(query[end-4:]) == 1 {
			reply[7] = 1
			address := netip.MustParseAddr(answer()).As4()
			reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
			reply = append(reply, address[:]...)
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

func loopback(int64) string { return "127.0.0.1" }

func allowed(t *testing.T, entries ...string) egress.Allowed {
	t.Helper()
	a, err := egress.ParseAllowed(entries)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// get requests a URL and returns the status of the answer.
func get(t *testing.T, client *http.Client, url string) (int, error) {
	t.Helper()
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, err
}

// blocked reports whether an address was refused because it is neither public
// nor allowed.
func blocked(err error) bool { return errors.Is(err, ssrf.ErrProhibitedIP) }

// TestNoSpellingOfASpecialAddressConnects dials every special host. Every name
// among them resolves to loopback.
func TestNoSpellingOfASpecialAddressConnects(t *testing.T) {
	t.Parallel()
	tr := newForbiddenServer(t, ok)
	client := egress.New(egress.Allowed{}, answering(loopback)).Client()
	for name, host := range spellings {
		if strings.Contains(host, ":") && host[0] != '[' {
			host = "[" + host + "]"
		}
		url := "http://" + host + ":" + tr.port + "/"
		if _, err := http.NewRequest(http.MethodGet, url, nil); err != nil || strings.Contains(host, "8.8.8.8]") {
			continue // not valid for a client, or public when it is dialled
		}
		status, err := get(t, client, url)
		var unknown *net.DNSError // Go's resolver does not accept numbers as names
		if !blocked(err) && !errors.As(err, &unknown) {
			t.Errorf("%s: %s was answered %d, %v", name, host, status, err)
		}
		if n := tr.connections.Swap(0); n != 0 {
			t.Errorf("%s: a connection to %s was opened", name, host)
		}
	}
	// The forbidden server counts connections.
	for _, host := range []string{"127.0.0.1", "any.example"} {
		open := egress.New(allowed(t, "127.0.0.0/8:"+tr.port), answering(loopback)).Client()
		if status, err := get(t, open, "http://"+host+":"+tr.port+"/"); err != nil || status != http.StatusOK || tr.connections.Swap(0) != 1 {
			t.Errorf("%s is allowed: status %d, %v", host, status, err)
		}
	}
}

func TestTheDialledAddressOfANameIsChecked(t *testing.T) {
	t.Parallel()
	tr := newForbiddenServer(t, ok)
	rebinding := answering(func(n int64) string {
		if n == 1 {
			return "8.8.8.8" // answer to a lookup before the connection
		}
		return "127.0.0.1"
	})
	seen, err := rebinding.LookupNetIP(t.Context(), "ip4", "rebind.example")
	if err != nil || len(seen) != 1 || seen[0] != netip.MustParseAddr("8.8.8.8") {
		t.Fatalf("the first lookup returns %v, %v", seen, err)
	}
	if err := egress.CheckURL("http://rebind.example:" + tr.port + "/"); err != nil {
		t.Fatal(err)
	}
	_, err = get(t, egress.New(egress.Allowed{}, rebinding).Client(), "http://rebind.example:"+tr.port+"/")
	if !blocked(err) || tr.connections.Load() != 0 {
		t.Errorf("got %v and %d connections", err, tr.connections.Load())
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	second := newForbiddenServer(t, ok)
	first := newForbiddenServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, second.URL, http.StatusTemporaryRedirect)
	})
	// The redirect is not followed even if both addresses are allowed.
	client := egress.New(allowed(t, "127.0.0.1:"+first.port, "127.0.0.1:"+second.port), nil).Client()
	status, err := get(t, client, first.URL)
	if err != nil || status != http.StatusTemporaryRedirect || second.connections.Load() != 0 {
		t.Errorf("status %d, %v, and %d connections to the second server", status, err, second.connections.Load())
	}
}

func TestNoProxyOfTheEnvironmentIsUsed(t *testing.T) {
	proxy := newForbiddenServer(t, ok)
	for _, word := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(word, proxy.URL)
	}
	client := egress.New(egress.Allowed{}, answering(loopback)).Client()
	if client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the client uses a proxy")
	}
	if _, err := get(t, client, "http://files.example/"); err == nil || proxy.connections.Load() != 0 {
		t.Errorf("got %v and %d connections to the proxy", err, proxy.connections.Load())
	}
}

func TestBodiesAreNotDecompressed(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 || r.Header.Get("Accept-Encoding") != "" {
			t.Errorf("the request is %s with Accept-Encoding %q", r.Proto, r.Header.Get("Accept-Encoding"))
		}
		if r.URL.Path == "/long" {
			w.Header().Set("X-Long", strings.Repeat("a", 128<<10))
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	client := egress.New(allowed(t, server.Listener.Addr().String()), nil).Client()
	client.Transport.(*http.Transport).TLSClientConfig = server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	if status, err := get(t, client, server.URL+"/"); err != nil || status != http.StatusOK {
		t.Errorf("status %d, %v", status, err)
	}
	if status, err := get(t, client, server.URL+"/long"); err == nil {
		t.Errorf("a head that is too long is accepted with status %d", status)
	}
}

// TestEveryConnectionErrorHasTheSameText tests a blocked address, a closed
// port, and a name without an address.
func TestEveryConnectionErrorHasTheSameText(t *testing.T) {
	t.Parallel()
	tr := newForbiddenServer(t, ok)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, closedPort, _ := net.SplitHostPort(closed.Addr().String())
	closed.Close()
	noResolver := &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no name server")
	}}
	guard := egress.New(allowed(t, "127.0.0.1:"+closedPort), noResolver)
	for name, c := range map[string]struct {
		address string
		blocked bool
	}{
		"blocked":      {"127.0.0.1:" + tr.port, true},
		"closed":       {"127.0.0.1:" + closedPort, false},
		"unresolvable": {"unknown.example:80", false},
		"no port":      {"127.0.0.1", false},
	} {
		conn, err := guard.Dial(t.Context(), "tcp", c.address)
		var unreachable *egress.Unreachable
		if !errors.As(err, &unreachable) || err.Error() != "the address cannot be reached" || conn != nil {
			t.Errorf("%s: got %v, %v", name, conn, err)
			continue
		}
		if unreachable.Cause == nil || blocked(err) != c.blocked {
			t.Errorf("%s: the log has the cause %v", name, unreachable.Cause)
		}
	}
	if tr.connections.Load() != 0 {
		t.Error("a connection was opened")
	}
}

func TestAConnectionErrorWrapsTheContextsError(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := egress.New(egress.Allowed{}, nil).Dial(ctx, "tcp", "8.8.8.8:80")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestOnlyTCPIsDialled(t *testing.T) {
	t.Parallel()
	guard := egress.New(allowed(t, "127.0.0.1:9"), nil)
	for _, network := range []string{"udp", "udp4", "ip4:icmp", "unix", "nonsense"} {
		if conn, err := guard.Dial(t.Context(), network, "127.0.0.1:9"); err == nil {
			conn.Close()
			t.Errorf("%s was dialled", network)
		}
	}
}
