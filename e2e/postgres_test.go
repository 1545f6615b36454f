package e2e

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

// cluster returns n gateways with one database and these sites.
func cluster(t *testing.T, server *postgrestest.Server, n int, s site, backends ...*backend) (all []*gateway) {
	t.Helper()
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	s.Storage = fmt.Sprintf("storage postgres %q\nsecret %x", server.Database(), secret)
	for range n {
		g := newGateway(t, s, backends...)
		g.start()
		g.awaitReady(http.StatusOK, "")
		all = append(all, g)
	}
	return all
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

// awaitKey waits until a key that another gateway has created is known.
func (g *gateway) awaitKey(key string) {
	g.t.Helper()
	for deadline := time.Now().Add(waitLimit); !g.authenticates(key); {
		if time.Now().After(deadline) {
			g.t.Fatal("a new key is not known at another gateway")
		}
	}
}

// awaitLive waits until the number of live gateways of the store is n.
func (g *gateway) awaitLive(n int) {
	g.t.Helper()
	var live int
	for deadline := time.Now().Add(waitLimit); live != n; {
		var list struct {
			Items []struct {
				State string `json:"state"`
			} `json:"items"`
		}
		g.mustGet("/modelgate/nodes", &list)
		live = 0
		for _, node := range list.Items {
			if node.State == "live" {
				live++
			}
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%d gateways live, want %d", live, n)
		}
	}
}

// workloads returns one workload for each gateway.
func workloads(t *testing.T, nodes []*gateway, scripts *scriptSet) (all []*workload) {
	t.Helper()
	for i, g := range nodes {
		m := g.newWorkload(fmt.Sprintf("user%d", i), scripts, newCallGenerator(t))
		m.shared = true
		m.workers["fill"] = 0 // a page of the demo service belongs to one address
		all = append(all, m)
	}
	return all
}

// moveTo makes the rest of a workload use another gateway.
func (m *workload) moveTo(g *gateway) { m.g, m.c.g = g, g }

func TestAKilledGatewayLosesNothingThatTheOthersDoNotHave(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	nodes := cluster(t, postgrestest.Start(t), 3, priced(b, salesOptions(planPrice)), b)
	all := workloads(t, nodes, scripts)
	victim := nodes[1]
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var acknowledged, after atomic.Int64
	var killed time.Time
	all[1].acknowledged = func() {
		if acknowledged.Add(1) == 300 {
			killed = time.Now()
			victim.process.kill()
		}
	}
	for _, i := range []int{0, 2} {
		all[i].acknowledged = func() {
			if acknowledged.Load() >= 300 && after.Add(1) == 300 {
				stop()
			}
		}
	}
	var running sync.WaitGroup
	for _, m := range all {
		running.Go(func() { m.run(ctx) })
	}
	running.Wait()
	receive(t, victim.process.exited, "the end of the process")
	if after.Load() < 300 {
		t.Errorf("the other gateways acknowledged %d operations after the kill, want at least 300", after.Load())
	}

	all[1].moveTo(nodes[2])
	nodes[0].awaitLive(2)
	nodes[0].verify()
	bound := all[1].maxLoss(killed)
	for i, m := range all {
		m.finish()
		lost, age := m.check(killed)
		if i == 1 && age > bound {
			t.Errorf("%d calls are lost, the first ended %v before the kill; allowed: %v", lost, age, bound)
		}
		if i != 1 && lost > 0 {
			t.Errorf("%d calls of a gateway that was not killed are lost", lost)
		}
	}
	nodes[0].verify()
}

func TestOneWalletAtThreeGatewaysIsNeverOverdrawn(t *testing.T) {
	t.Parallel()
	b := newBackend(t, answerCalls)
	nodes := cluster(t, postgrestest.Start(t), 3, priced(b, salesOptions(planPrice)), b)
	poor := nodes[0].newGatewayUser("poor")
	poor.credit("0.005")
	for _, g := range nodes {
		g.awaitKey(poor.key)
	}
	transport := newTransport(http1)
	transport.MaxIdleConnsPerHost = 64
	defer transport.CloseIdleConnections()
	var answered, refused atomic.Int64
	inParallel(24, 240, func(i int) {
		g := nodes[i%len(nodes)]
		a := g.sendOver(transport, g.request(t.Context(), "/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+poor.key))
		switch a.Status {
		case http.StatusOK:
			answered.Add(1)
		case http.StatusForbidden, http.StatusPaymentRequired, http.StatusTooManyRequests:
			refused.Add(1)
		default:
			t.Errorf("a call got %d %.200s %v", a.Status, a.Body, a.Err)
		}
	})
	nodes[1].awaitCalls("poor", int(answered.Load()))
	w := nodes[2].walletAtRest("poor")
	if w.Balance < 0 || w.Held != 0 {
		t.Errorf("the wallet is %+v after %d calls", w, answered.Load())
	}
	if answered.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d calls were answered and %d refused, want both", answered.Load(), refused.Load())
	}
	t.Logf("%d answered, %d refused, %v left", answered.Load(), refused.Load(), w.Balance)
	nodes[0].verify()
}

func TestARevokedKeyIsRefusedEverywhereOnceTheCommandHasAnswered(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	nodes := cluster(t, postgrestest.Start(t), 3, priced(b, salesOptions(planPrice)), b)
	nodes[0].post("/modelgate/users", map[string]any{"name": "ada"}, nil)
	for range 5 {
		key := nodes[0].newKey("ada")
		for _, g := range nodes {
			g.awaitKey(key.Secret)
		}
		nodes[1].post("/modelgate/keys/"+key.ID+"/revoke", nil, nil)
		for i, g := range nodes {
			if g.authenticates(key.Secret) {
				t.Errorf("gateway %d accepts a key that was revoked", i)
			}
		}
	}
}

func TestAStoppedGatewayAcknowledgesNothingThatIsLost(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	nodes := cluster(t, postgrestest.Start(t), 2, priced(b, salesOptions(planPrice)), b)
	m := nodes[0].newWorkload("ada", scripts, newCallGenerator(t))
	if err := nodes[0].process.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	nodes[1].process.await("ended a gateway that was silent")
	changed := make(chan error, 1)
	go func() { changed <- nodes[0].tryPost("/modelgate/users", map[string]any{"name": "late"}, nil) }()
	if err := nodes[0].process.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	late := receive(t, changed, "the late change")
	nodes[0].process.await("the other gateways have ended this one")
	nodes[0].awaitReady(http.StatusOK, "")
	want := 1
	if late == nil { // the operation reached the gateway after it had joined anew
		want = 2
	}
	if users := nodes[1].users(); users != want {
		t.Errorf("the store has %d users, want %d", users, want)
	}
	m.finish()
	k := m.wholeCall()
	scripts.add(k)
	m.calls = append(m.calls, k)
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	if err := nodes[0].runCall(t.Context(), transport, m.c.key, k); err != nil {
		t.Errorf("a call after the gateway has joined anew: %v", err)
	}
	nodes[1].awaitCalls("ada", 1)
	m.check(time.Now())
	nodes[0].verify()
}

func TestAllGatewaysAreBackWhenTheirDatabaseIs(t *testing.T) {
	t.Parallel()
	scripts := new(scriptSet)
	b := newBackend(t, scripts.serve)
	server := postgrestest.Start(t)
	nodes := cluster(t, server, 2, priced(b, salesOptions(planPrice)), b)
	m := nodes[0].newWorkload("ada", scripts, newCallGenerator(t))
	server.Stop()
	for _, g := range nodes {
		g.awaitReady(http.StatusServiceUnavailable, "store")
		a := g.call("/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+m.c.key)
		if a.Status != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
			t.Errorf("a call without the database: %d %.200s %v", a.Status, a.Body, a.Err)
		}
	}
	server.Start()
	started := time.Now()
	for _, g := range nodes {
		g.awaitReady(http.StatusOK, "")
	}
	t.Logf("all gateways were ready %v after the database", time.Since(started).Round(time.Millisecond))
	m.finish()
	m.check(time.Now())
	nodes[1].verify()
}
