package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAfterARefusalTheConnectionIsUsableOrClosed(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)
	for _, refused := range []struct {
		name   string
		path   string
		body   string
		header []string
		status int
	}{
		{"for its key", "/v1/messages", callBodies["/v1/messages"], nil, http.StatusUnauthorized},
		{"for its encoding", "/v1/messages", callBodies["/v1/messages"], append(g.bearer(), "Content-Encoding", "br"), http.StatusUnsupportedMediaType},
		{"for its path", "/v1//messages", callBodies["/v1/messages"], g.bearer(), http.StatusNotFound},
		{"for its body", "/v1/messages", `{"model":"m-1"}`, g.bearer(), http.StatusBadRequest},
	} {
		t.Run(refused.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", g.Address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(waitLimit))
			r := bufio.NewReader(conn)
			first := exchange(t, conn, r, g.request(t.Context(), refused.path, refused.body, refused.header...))
			if first.StatusCode != refused.status {
				t.Errorf("got %s", first.Status)
			}
			if first.Close {
				return
			}
			second := exchange(t, conn, r, g.request(t.Context(), "/v1/messages", callBodies["/v1/messages"], g.bearer()...))
			if second.StatusCode != http.StatusOK {
				t.Errorf("the next call got %s", second.Status)
			}
		})
	}
}

func TestTheBodyOfARefusedCallIsNeverReadAsTheNextCall(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	g := running(t, forwarding(b), b)
	// A proxy that shares connections among callers would treat this as the
	// answer to another caller.
	const inner = "GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n"
	for _, size := range []int{100, 100 << 10, 300 << 10, 9 << 20, 40 << 20} {
		for _, path := range []string{"/v1/messages", "/v1/chat/completions", "/v1//messages", "/v1/models"} {
			body := fmt.Sprintf(inner, g.Address)
			body += strings.Repeat("x", max(0, size-len(body)))
			answer := g.raw(fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s"+
				"GET /v1/none HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, g.Address, len(body), body, g.Address))
			if strings.Contains(answer, `{"status":"ok"}`) {
				t.Errorf("%s, %d bytes: the body was read as a call:\n%s", path, size, answer)
			}
			if !strings.HasPrefix(answer, "HTTP/1.1 40") {
				t.Errorf("%s, %d bytes: got %q", path, size, answer)
			}
		}
	}
}

// exchange sends one request over a connection and reads the complete answer.
func exchange(t *testing.T, conn net.Conn, r *bufio.Reader, req *http.Request) *http.Response {
	t.Helper()
	if err := req.Write(conn); err != nil {
		t.Fatalf("sending: %v", err)
	}
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		t.Fatalf("the connection closed without an answer: %v", err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp
}
