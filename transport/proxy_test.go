package transport_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/caddy-modelgate/modelgate/transport"
)

// site is a Caddy with one site, on a socket.
type site struct {
	t      *testing.T
	socket string
}

// startSite replaces the running Caddy. TRANSPORT in the directives stands for the transport.
func startSite(t *testing.T, transport, directives string) *site {
	t.Helper()
	s := &site{t, filepath.Join(t.TempDir(), "site")}
	config := "{\nadmin off\npersist_config off\nlog {\noutput discard\n}\n}\nhttp:// {\nbind unix/" + s.socket + "\n" +
		strings.ReplaceAll(directives, "TRANSPORT", "transport "+transport) + "\n}\n"
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(config), nil)
	if err == nil {
		err = caddy.Load(adapted, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) dial() net.Conn {
	s.t.Helper()
	conn, err := new(net.Dialer).DialContext(s.t.Context(), "unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// do sends a request with headers such as "Name: value", and returns the answer as "status body".
func (s *site) do(method, path, body string, headers ...string) string {
	s.t.Helper()
	client := http.Client{Transport: &http.Transport{
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return s.dial(), nil },
		DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://site"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(got))
}

// switches asks for another protocol and returns the status and what the upstream repeats then.
func (s *site) switches(request string) string {
	s.t.Helper()
	conn := s.dial()
	if _, err := io.WriteString(conn, request+"\r\nHost: site\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"); err != nil {
		s.t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Sprint(resp.StatusCode)
	}
	repeated := ""
	for _, frame := range []string{"first\n", "second\n"} {
		if _, err := io.WriteString(conn, frame); err != nil {
			s.t.Fatal(err)
		}
		line, err := r.ReadString('\n')
		if err != nil {
			s.t.Fatal(err)
		}
		repeated += line
	}
	return fmt.Sprint(resp.StatusCode, " ", repeated)
}

// newUpstream returns the address of a server that says its name, or what its path asks for.
func newUpstream(t *testing.T, name string, held chan struct{}) string {
	t.Helper()
	handler := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case r.Method == http.MethodConnect:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case r.Header.Get("Upgrade") == "websocket":
			conn, buffered, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(buffered, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
			for {
				buffered.Flush()
				line, err := buffered.ReadString('\n')
				if err != nil {
					return
				}
				fmt.Fprint(buffered, "again ", line)
			}
		case r.URL.Path == "/auth":
			if r.Header.Get("Key") != "right" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			w.Header().Set("User", "ada")
		case r.URL.Path == "/health" && name == "sick":
			w.WriteHeader(http.StatusServiceUnavailable)
		case r.URL.Path == "/hold":
			held <- struct{}{}
			<-held
		default:
			fmt.Fprintf(w, "%s %s%s %d", name, r.Header.Get("User"), r.URL.Path, len(body))
		}
	}
	server := httptest.NewServer(http.HandlerFunc(handler))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// TestReverseProxyIsTheSame compares the transport with Caddy's under the features of reverse_proxy
// that use a transport in their own way.
func TestReverseProxyIsTheSame(t *testing.T) {
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	held := make(chan struct{})
	one, two, sick := newUpstream(t, "one", held), newUpstream(t, "two", held), newUpstream(t, "sick", held)
	large := strings.Repeat("x", 300<<10)
	for name, c := range map[string]struct {
		directives string
		run        func(s *site) string
		want       string
	}{
		"websocket": {
			"reverse_proxy " + one + " {\nTRANSPORT\n}",
			func(s *site) string { return s.switches("GET /socket HTTP/1.1") + s.do("GET", "/after", "") },
			"101 again first\nagain second\n200 one /after 0",
		},
		"CONNECT": {
			"reverse_proxy " + one + " {\nTRANSPORT\n}",
			func(s *site) string { return s.do("CONNECT", "/", "") + s.do("GET", "/after", "") },
			"405 200 one /after 0",
		},
		"placeholders": {
			"reverse_proxy {header.To} {\nTRANSPORT\n}",
			func(s *site) string {
				return s.do("POST", "/1", "x", "To: "+one) + s.do("POST", "/2", large, "To: "+two) + s.do("GET", "/3", "", "To: "+one)
			},
			"200 one /1 1200 two /2 307200200 one /3 0",
		},
		"dynamic upstreams": {
			"reverse_proxy {\ndynamic a localhost " + one[strings.LastIndex(one, ":")+1:] + " {\nversions ipv4\n}\nTRANSPORT\n}",
			func(s *site) string { return s.do("POST", "/1", "x") + s.do("POST", "/2", large) },
			"200 one /1 1200 one /2 307200",
		},
		"forward_auth": {
			"forward_auth " + two + " {\nuri /auth\ncopy_headers User\nTRANSPORT\n}\nreverse_proxy " + one + " {\nTRANSPORT\n}",
			func(s *site) string {
				return s.do("POST", "/1", "xx", "Key: right") + s.do("POST", "/2", large, "Key: right") + s.do("POST", "/3", "xx")
			},
			"200 one ada/1 2200 one ada/2 307200401 ",
		},
		"active health checks": {
			"reverse_proxy " + sick + " " + two + " {\nTRANSPORT\nlb_policy first\nhealth_uri /health\nhealth_interval 10ms\n}",
			func(s *site) string {
				got := s.do("POST", "/1", "x")
				for strings.HasPrefix(got, "200 sick") && s.t.Context().Err() == nil { // the checks have not ended
					got = s.do("POST", "/1", "x")
				}
				return got
			},
			"200 two /1 1",
		},
		"max_requests": {
			"reverse_proxy " + one + " " + two + " {\nTRANSPORT\nlb_policy first\nunhealthy_request_count 1\nfail_duration 1m\n}",
			func(s *site) string {
				ended := make(chan string)
				go func() { ended <- s.do("GET", "/hold", "") }()
				<-held
				got := s.do("POST", "/1", "x")
				held <- struct{}{}
				return <-ended + got + s.do("POST", "/2", "x")
			},
			"200 200 two /1 1200 one /2 1",
		},
	} {
		for _, transport := range []string{"http", "modelgate"} {
			t.Run(name+" by "+transport, func(t *testing.T) {
				if got := c.run(startSite(t, transport, c.directives)); got != c.want {
					t.Errorf("got %.200q, want %.200q", got, c.want)
				}
			})
		}
	}
}
