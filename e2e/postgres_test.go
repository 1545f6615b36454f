package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

// standbys returns two gateways with one database: the first is active, the second a standby.
// Their sites are those of priced.
func standbys(t *testing.T, server *postgrestest.Server, b *backend) (active, standby *gateway) {
	t.Helper()
	s := priced(b, salesOptions(planPrice))
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	s.Storage = fmt.Sprintf("storage postgres %q {\n patience 1s\n}\nsecret %x", server.Database(), secret)
	active, standby = newGateway(t, s, b), newGateway(t, s, b)
	active.start()
	standby.start()
	standby.awaitReady(http.StatusServiceUnavailable, "standby")
	return active, standby
}

// awaitReady waits until /readyz has this status and contains text.
func (g *gateway) awaitReady(status int, text string) {
	g.t.Helper()
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for deadline := time.Now().Add(waitLimit); ; <-beat.C {
		a := g.get("/readyz")
		if a.Status == status && strings.Contains(a.Body, text) {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("/readyz: %d %q %v, want %d %q", a.Status, a.Body, a.Err, status, text)
		}
	}
}

// get reads a path of the site.
func (g *gateway) get(path string) answer {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url(path), nil)
	if err != nil {
		g.t.Fatal(err)
	}
	return g.send(req)
}

func TestAStandbyTakesOverFromAKilledGateway(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	active, standby := standbys(t, postgrestest.Start(t), b)
	m := active.newWorkload("ada", scripts, newCallGenerator(t))
	m.workers["fill"] = 0 // a page of the demo service belongs to one address
	var acknowledged atomic.Int64
	var killed time.Time
	m.acknowledged = func() {
		if acknowledged.Add(1) == 300 {
			killed = time.Now()
			active.process.kill()
		}
	}
	m.run(context.Background())
	receive(t, active.process.exited, "the end of the process")

	m.g, m.c.g = standby, standby
	standby.awaitReady(http.StatusOK, "")
	t.Logf("the standby was ready %v after the kill", time.Since(killed).Round(time.Millisecond))
	standby.verify()
	bound := m.maxLoss(killed)
	m.finish()
	if lost, age := m.check(killed); age > bound {
		t.Errorf("%d calls are lost, the first ended %v before the kill; allowed: %v", lost, age, bound)
	}
	standby.verify()
}

func TestAStoppedGatewayAcknowledgesNothingAfterATakeover(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	active, standby := standbys(t, postgrestest.Start(t), b)
	m := active.newWorkload("ada", scripts, newCallGenerator(t))
	if err := active.process.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	standby.awaitReady(http.StatusOK, "")
	after := m.c.operatorCredit("before", unit)
	m.c.g = standby
	if err := after.attempt(); err != nil {
		t.Fatal(err)
	}
	balance := standby.wallet("ada").Balance

	// What the stopped gateway finds in its sockets when it continues is not acknowledged.
	late, changed, written := make(chan answer, 1), make(chan error, 1), make(chan struct{}, 1)
	go func() { changed <- active.tryPost("/modelgate/users", map[string]any{"name": "late"}, nil) }()
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		WroteRequest: func(httptrace.WroteRequestInfo) { written <- struct{}{} },
	})
	req := active.request(ctx, "/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+m.c.key)
	go func() { late <- active.send(req) }()
	receive(t, written, "the late call in the socket")
	if err := active.process.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if a := receive(t, late, "the late call"); a.Status == http.StatusOK {
		t.Errorf("a call was answered after the takeover: %s", a.Body)
	}
	if err := receive(t, changed, "the late change"); err == nil {
		t.Error("a change was acknowledged after the takeover")
	}
	active.awaitReady(http.StatusServiceUnavailable, "standby")
	if users := standby.users(); users != 1 {
		t.Errorf("the store has %d users, want 1", users)
	}
	if now := standby.wallet("ada").Balance; now != balance {
		t.Errorf("the balance is %v, want %v", now, balance)
	}

	// The two change roles when the second ends.
	standby.process.terminate()
	standby.process.code(waitLimit)
	active.awaitReady(http.StatusOK, "")
	if now := active.wallet("ada").Balance; now != balance {
		t.Errorf("the balance is %v after the way back, want %v", now, balance)
	}
	active.verify()
}

func TestAGatewayIsBackWhenItsDatabaseIs(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	server := postgrestest.Start(t)
	active, standby := standbys(t, server, b)
	m := active.newWorkload("ada", scripts, newCallGenerator(t))
	server.Stop()
	active.awaitReady(http.StatusServiceUnavailable, "store")
	a := active.call("/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+m.c.key)
	if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
		t.Errorf("a call without the database: %d %.200s %v", a.Status, a.Body, a.Err)
	}
	server.Start()
	ready := active
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for deadline := time.Now().Add(waitLimit); active.get("/readyz").Status != http.StatusOK; <-beat.C {
		if standby.get("/readyz").Status == http.StatusOK { // it was faster to reach the database
			ready = standby
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no gateway is ready again")
		}
	}
	m.g, m.c.g = ready, ready
	m.finish()
	k := m.wholeCall()
	scripts.add(k)
	m.calls = append(m.calls, k)
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	if err := ready.runCall(t.Context(), transport, m.c.key, k); err != nil {
		t.Errorf("a call after the outage: %v", err)
	}
	ready.awaitCalls("ada", 1)
	m.check(time.Now())
	ready.verify()
}
