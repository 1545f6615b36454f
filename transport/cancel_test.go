package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
)

func TestCancel(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 20 << 20} {
		for name, answer := range map[string]string{"before the head": "", "in the body": "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"} {
			t.Run(fmt.Sprint(name, size), func(t *testing.T) {
				t.Parallel()
				begun, ended := make(chan bool), make(chan bool)
				p := newPeer(t, func(w *wire) {
					w.head()
					w.send(answer)
					close(begun)
					w.awaitEnd()
					close(ended)
				})
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					<-begun
					if answer == "" {
						cancel()
					}
				}()
				m := inMemory(size)
				resp, err := newTransport(t).RoundTrip(m.of(to(t, ctx, p, "POST", "/", nil)))
				if answer == "" {
					if !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
				} else {
					if err != nil {
						t.Fatal(err)
					}
					if _, err := io.ReadFull(resp.Body, make([]byte, 5)); err != nil {
						t.Fatal(err)
					}
					cancel()
					if _, err := resp.Body.Read(make([]byte, 5)); err != context.Canceled { //nolint:errorlint // reverse_proxy compares the value
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				m.poison(t)
				<-ended
			})
		}
	}
}

// TestCancelBeforeTheRequestIsSent cancels while a connection is dialled, and while its peer reads
// nothing.
func TestCancelBeforeTheRequestIsSent(t *testing.T) {
	t.Parallel()
	for name, stuck := range map[string]func(*Transport, chan bool){
		"dialling": func(tr *Transport, begun chan bool) {
			tr.HTTPTransport.Transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				close(begun)
				<-ctx.Done()
				return nil, reverseproxy.NewDialError(ctx.Err())
			}
		},
		"writing": func(tr *Transport, begun chan bool) {
			tr.HTTPTransport.Transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
				here, there := net.Pipe() // a write waits for its reader
				t.Cleanup(func() { there.Close() })
				go func() {
					_, _ = there.Read(make([]byte, 1))
					close(begun)
				}()
				return here, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr, begun := newTransport(t), make(chan bool)
			stuck(tr, begun)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-begun
				cancel()
			}()
			m := inMemory(100_000)
			_, _, err := fetch(tr, m.of(to(t, ctx, newPeer(t, answering(ok)), "POST", "/", nil)))
			if !errors.Is(err, context.Canceled) || tr.pool.count != 0 {
				t.Error(err, tr.pool.count)
			}
			m.poison(t)
		})
	}
}

// TestAnEarlyAnswerSurvivesAReset resets the connection after the head of an answer was returned and
// its body was received with it.
func TestAnEarlyAnswerSurvivesAReset(t *testing.T) {
	t.Parallel()
	returned, reset := make(chan bool), make(chan bool)
	p := newPeer(t, func(w *wire) {
		w.head()
		w.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
		<-returned
		_ = w.Conn.(*net.TCPConn).SetLinger(0)
		w.Close()
		close(reset)
	})
	tr := newTransport(t)
	m := inMemory(20 << 20)
	resp, err := tr.RoundTrip(m.of(post(t, p, nil)))
	if err != nil {
		t.Fatal(err)
	}
	close(returned)
	<-reset
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 413 || string(body) != "no" {
		t.Error(resp.StatusCode, body, err)
	}
	m.poison(t)
	if tr.pool.count != 0 {
		t.Error("the connection is idle")
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	p := newPeer(t, func(w *wire) { w.awaitEnd() })
	d := caddy.Duration(20 * time.Millisecond)
	for name, configure := range map[string]func(*Transport){
		"head": func(tr *Transport) { tr.ResponseHeaderTimeout = d },
		"read": func(tr *Transport) { tr.ReadTimeout = d },
	} {
		var timeout net.Error
		tr := newTransport(t, configure)
		if _, _, err := fetch(tr, get(t, p)); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error(name, err)
		}
		if _, _, err := fetch(tr, inMemory(100_000).of(post(t, p, nil))); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Error(name, err)
		}
	}
	stuck := newPeer(t, func(w *wire) {
		w.head()
		select {
		case <-t.Context().Done():
		}
	})
	var timeout net.Error
	m := inMemory(30 << 20)
	if _, _, err := fetch(newTransport(t, func(tr *Transport) { tr.WriteTimeout = d }), m.of(post(t, stuck, nil))); !errors.As(err, &timeout) {
		t.Error(err)
	}
	m.poison(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, _, err := fetch(newTransport(t), to(t, ctx, p, "GET", "/", nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestCloseOfABody(t *testing.T) {
	t.Parallel()
	ended := make(chan bool, 2)
	p := newPeer(t, func(w *wire) {
		w.request()
		w.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		w.awaitEnd()
		ended <- true
	})
	tr := newTransport(t)
	resp, err := tr.RoundTrip(get(t, p))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	resp.Body.Close()
	if _, err := resp.Body.Read(make([]byte, 1)); err != http.ErrBodyReadAfterClose { //nolint:errorlint // as net/http
		t.Error(err)
	}
	<-ended
	if resp, err = tr.RoundTrip(get(t, p)); err != nil {
		t.Fatal(err)
	}
	reading := make(chan error)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		reading <- err
	}()
	resp.Body.Close()
	if err := <-reading; err == nil {
		t.Error("the reader saw a whole body")
	}
	<-ended
}

func TestEarlyAnswers(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]bool{"peer stops reading": false, "peer closes": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPeer(t, func(w *wire) {
				w.head()
				w.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
				if !reset {
					<-t.Context().Done()
				}
			})
			tr := newTransport(t)
			m := inMemory(20 << 20)
			resp, body, err := fetch(tr, m.of(post(t, p, nil)))
			if reset && err != nil {
				return // the kernel has thrown the answer away
			}
			if err != nil || resp.StatusCode != 413 || body != "no" {
				t.Fatal(resp, body, err)
			}
			m.poison(t)
			if tr.pool.count != 0 {
				t.Error("the connection is idle")
			}
		})
	}
}
