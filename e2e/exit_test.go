package e2e

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// heldBackend returns a backend that sends the header and the first event of a stream
// at once, and the rest when release is closed.
func heldBackend(t *testing.T, events []string) (b *backend, release chan struct{}) {
	t.Helper()
	release = make(chan struct{})
	return newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		if !strings.Contains(string(a.Body), `"stream":true`) {
			select {
			case <-release:
				answerCalls(s, a)
			case <-a.Gone:
			}
			return
		}
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
		s.write(events[0])
		select {
		case <-release:
		case <-a.Gone:
			return
		}
		for _, e := range events[1:] {
			s.write(e)
		}
	}), release
}

func TestTheProcessWaitsForCalls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		grace string
		over  bool // the calls end only after the grace period, within the gateway's own limit
	}{
		{"without a grace period", "", false},
		{"within the grace period", "grace_period 30s", false},
		{"after the grace period", "grace_period 200ms", true},
	} {
		for path, events := range map[string][]string{"/v1/messages": messageEvents, "/v1/chat/completions": chatEvents} {
			t.Run(c.name+path, func(t *testing.T) {
				t.Parallel()
				b, release := heldBackend(t, events)
				s := forwarding(b)
				s.Global = c.grace
				g := running(t, s, b)

				resp := g.open(t.Context(), http1, path, streamBodies[path])
				expect(t, resp.Body, events[0])
				whole := make(chan answer, 1)
				go func() { whole <- g.send(g.request(t.Context(), path, callBodies[path], g.bearer()...)) }()
				b.next()
				b.next()

				g.process.terminate()
				g.process.await("servers shutting down")
				if c.over {
					g.process.await("server graceful shutdown")
				}
				close(release)
				expect(t, resp.Body, strings.Join(events[1:], ""))
				if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
					t.Errorf("the stream has %q after its last event (%v)", rest, err)
				}
				if a := receive(t, whole, "the other call's answer"); a.Status != http.StatusOK || a.Err != nil || !strings.Contains(a.Body, "Hello.") {
					t.Errorf("the other call got %d %q (%v)", a.Status, a.Body, a.Err)
				}
				if code := g.process.code(waitLimit); code != 0 {
					t.Errorf("exit code %d", code)
				}
				g.checkReopens()
			})
		}
	}
}

func TestAnAnswerIsCompletedBeforeTheProcessEnds(t *testing.T) {
	t.Parallel()
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			b, release := heldBackend(t, chatEvents)
			s := forwarding(b)
			s.Global = "grace_period 100ms"
			g := running(t, s, b)
			whole := make(chan answer, 1)
			go func() {
				whole <- g.send(g.request(t.Context(), "/v1/chat/completions", callBodies["/v1/chat/completions"], g.bearer()...))
			}()
			b.next()
			g.process.terminate()
			g.process.await("server graceful shutdown")
			close(release)
			if a := receive(t, whole, "the answer"); a.Status != http.StatusOK || a.Body != chatJSON {
				t.Errorf("the client got %d %q (%v) of a complete answer", a.Status, a.Body, a.Err)
			}
		})
	}
}

func TestTheProcessEndsDuringAnEndlessCall(t *testing.T) {
	t.Parallel()
	b, release := heldBackend(t, messageEvents)
	defer close(release)
	s := forwarding(b)
	s.Global = "grace_period 200ms"
	g := running(t, s, b)
	resp := g.open(t.Context(), http1, "/v1/messages", streamBodies["/v1/messages"])
	expect(t, resp.Body, messageEvents[0])
	a := b.next()

	g.process.terminate()
	if rest, err := io.ReadAll(resp.Body); err == nil && !strings.Contains(string(rest), "event: error\n") {
		t.Errorf("a stream that was cut off looks complete: %q", rest)
	}
	receive(t, a.Gone, "the end of the backend's call")
	g.process.await(`"ended":"upstream_error"`)
	if code := g.process.code(waitLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	g.checkReopens()
}

// checkReopens starts the gateway again on its store, which must have been
// closed cleanly: nothing is replayed or repaired.
func (g *gateway) checkReopens() {
	g.t.Helper()
	if strings.Contains(g.process.log.String(), "closing the store") {
		g.t.Errorf("the store was not closed cleanly")
	}
	g.start()
	if !g.authenticates(g.Key) {
		g.t.Errorf("the key is lost")
	}
}

func TestErrorsDuringShutdownRevealNoInternals(t *testing.T) {
	t.Parallel()
	for i := range 4 { // Caddy stops its apps in random order
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			callDuringShutdown(t)
		})
	}
}

func callDuringShutdown(t *testing.T) {
	b := newBackend(t, answerCalls)
	s := forwarding(b)
	const delay = 2 * time.Second
	s.Global = "shutdown_delay " + delay.String() // Caddy continues to serve during this delay
	g := running(t, s, b)
	began := time.Now()
	g.process.terminate()
	g.process.await("shutdown scheduled")
	for n := range 20 {
		a := g.call("/v1/chat/completions", callBodies["/v1/chat/completions"], g.bearer()...)
		if n > 0 && a.Err != nil && time.Since(began) > delay {
			break // the process has ended: it accepts no connection
		}
		if a.Err != nil || a.Status != http.StatusOK && (a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "") {
			t.Errorf("got %d %s %v", a.Status, a.Body, a.Err)
		}
		if strings.Contains(a.Body, g.Dir) || strings.Contains(a.Body, strconv.Itoa(g.process.cmd.Process.Pid)) {
			t.Errorf("the answer reveals the machine: %s", a.Body)
		}
	}
	if code := g.process.code(waitLimit); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if n := strings.Count(g.process.log.String(), "tables opened"); n != 1 {
		t.Errorf("the store was opened %d times", n)
	}
}

func TestASecondProcessNamesTheOwnerOfTheStore(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	second := newGateway(t, demonstration)
	second.Store = g.Store
	second.writeConfig()

	other := second.command("run", "--config", second.file(), "--adapter", "caddyfile")
	if code := other.code(waitLimit); code == 0 {
		t.Error("the second process ended without an error")
	}
	want := "the directory is in use by process " + strconv.Itoa(g.process.cmd.Process.Pid)
	if log := other.log.String(); !strings.Contains(log, want) {
		t.Errorf("the second process did not log %q:\n%s", want, other.log.tail(10))
	}
	if !g.authenticates(g.Key) {
		t.Error("the first process no longer accepts its key")
	}
}

func TestValidateWorksWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	g := running(t, demonstration)
	if code := g.command("validate", "--config", g.file(), "--adapter", "caddyfile").code(waitLimit); code != 0 {
		t.Errorf("a good configuration: exit code %d", code)
	}
	g.Site.Limits = "idle -1s"
	g.writeConfig()
	if code := g.command("validate", "--config", g.file(), "--adapter", "caddyfile").code(waitLimit); code == 0 {
		t.Error("a bad configuration passed")
	}
	if !g.authenticates(g.Key) {
		t.Error("the server no longer accepts its key")
	}
}
