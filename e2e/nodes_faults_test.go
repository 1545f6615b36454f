package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

var nodesHarm = flag.Duration("nodes.harm", 15*time.Second, "how long three gateways of one database have faults")

// answered is a call that a gateway has answered.
type answered struct {
	id   string
	node int
	at   time.Time
}

// harmed is a time at which a gateway may have lost settlements that it had not written.
type harmed struct {
	node int
	at   time.Time
}

// maxUnwritten is how long before a fault a call may have ended whose settlement is lost. A settlement
// waits up to 100 ms for a commit, and longer while the database is down.
const maxUnwritten = 8 * time.Second

// harm causes random faults of gateways and their database, one after another.
type harm struct {
	server *postgrestest.Server
	dsn    string
	nodes  []*gateway
	random *rand.Rand
	acts   map[string]int
	losses []harmed
	notes  []string // what was done and what gateways logged of it, for errors
}

// noteLosses notes the times at which a process has logged that it loses what it had not written: on a
// busy machine a gateway may be silent for so long that the others end it.
func (h *harm) noteLosses(node int, p *process) {
	for _, line := range p.log.lines("settlements are lost", "have ended this one") {
		var entry struct {
			TS float64 `json:"ts"`
		}
		if json.Unmarshal([]byte(line), &entry) == nil {
			h.losses = append(h.losses, harmed{node, time.UnixMilli(int64(entry.TS * 1000))})
		}
		h.notes = append(h.notes, line)
	}
}

func (h *harm) act() {
	i := h.random.IntN(len(h.nodes))
	g, what := h.nodes[i], []string{"kill", "kill", "stop", "stop", "cut", "cut", "cut", "crash", "end"}[h.random.IntN(9)]
	h.acts[what]++
	h.notes = append(h.notes, fmt.Sprintf("%v %s %d", time.Now().Format(time.TimeOnly), what, i))
	defer func(p *process) { h.noteLosses(i, p) }(g.process)
	switch what {
	case "kill":
		h.losses = append(h.losses, harmed{i, time.Now()})
		g.process.kill()
		g.start()
	case "stop":
		h.losses = append(h.losses, harmed{i, time.Now()})
		_ = g.process.cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(time.Duration(100+h.random.IntN(6000)) * time.Millisecond)
		_ = g.process.cmd.Process.Signal(syscall.SIGCONT)
	case "cut":
		h.server.Query(h.dsn, `select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'modelgate' and random() < 0.5`)
	case "crash":
		h.server.Stop()
		time.Sleep(time.Duration(h.random.IntN(2000)) * time.Millisecond)
		h.server.Start()
	case "end":
		g.process.terminate()
		g.process.code(waitLimit)
		g.start()
	}
}

// TestFaultsOfThreeGatewaysKeepTheLedgerRight kills, stops and ends gateways, cuts their connections
// and crashes their database while callers call and operators credit. Afterwards each acknowledged
// credit is recorded once. Each answered call is charged once, or its settlement was lost within
// maxUnwritten of a fault of its gateway. The test runs alone, because a gateway without CPU time is ended.
func TestFaultsOfThreeGatewaysKeepTheLedgerRight(t *testing.T) {
	b := newBackend(t, answerCalls)
	server := postgrestest.Start(t)
	nodes := cluster(t, server, b, 3)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &harm{server: server, dsn: server.DSN("test1"), nodes: nodes, random: rand.New(rand.NewPCG(seed, 0)), acts: map[string]int{}}

	const callers = 6
	users := make([]*gatewayUser, callers)
	for i := range users {
		users[i] = nodes[i%3].newGatewayUser(fmt.Sprintf("user%d", i))
		users[i].credit("1")
		for _, g := range nodes {
			g.awaitKey(users[i].key)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	calls := make([][]answered, callers)
	credits := make([][]*payment, callers)
	for i, u := range users {
		running.Go(func() {
			transport := newTransport(http1)
			transport.ResponseHeaderTimeout = 10 * time.Second
			defer transport.CloseIdleConnections()
			for n := i; ctx.Err() == nil; n++ {
				g := nodes[n%3]
				callCtx, cancel := context.WithTimeout(ctx, 10*time.Second)
				a := g.sendOver(transport, g.request(callCtx, "/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+u.key))
				cancel()
				if a.Err == nil && a.Status == http.StatusOK {
					calls[i] = append(calls[i], answered{a.Header.Get("X-Request-Id"), n % 3, time.Now()})
				} else if a.Err != nil || a.Status == http.StatusServiceUnavailable {
					select { // a gateway that is down refuses at once
					case <-time.After(5 * time.Millisecond):
					case <-ctx.Done():
					}
				} else {
					t.Errorf("a call got %d %.300s", a.Status, a.Body)
				}
			}
		})
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				own := *u
				own.g = nodes[(n+i)%3]
				d := own.operatorCredit(fmt.Sprintf("credit-%d-%d", i, n), 1)
				credits[i] = append(credits[i], d)
				_ = d.attempt() // one that was not acknowledged is repeated at the end
				select {
				case <-time.After(50 * time.Millisecond):
				case <-ctx.Done():
				}
			}
		})
	}
	for began := time.Now(); time.Since(began) < *nodesHarm; {
		h.act()
		time.Sleep(time.Duration(h.random.IntN(1000)) * time.Millisecond)
	}
	stop()
	running.Wait()
	for _, g := range nodes {
		g.awaitReady(http.StatusOK, "")
	}
	for i, g := range nodes {
		h.noteLosses(i, g.process)
	}

	whole, lost := 0, 0
	for i, u := range users {
		u.g = nodes[i%3]
		w := u.g.walletAtRest(u.name) // when another gateway has cleared up after the last epoch that ended
		u.checkPayments(u.g.ledger(u.name), credits[i])
		for _, d := range credits[i] {
			if err := d.attempt(); err != nil {
				t.Errorf("the repetition of a credit: %v", err)
			}
		}
		u.checkPayments(u.g.ledger(u.name), credits[i])
		recorded := map[string]int{}
		for _, c := range u.calls() {
			recorded[c.Request]++
		}
		for id, n := range recorded {
			if n != 1 {
				t.Errorf("the call %s is recorded %d times", id, n)
			}
		}
		for _, a := range calls[i] {
			whole++
			if recorded[a.id] == 1 {
				continue
			}
			lost++
			if !slices.ContainsFunc(h.losses, func(l harmed) bool {
				return l.node == a.node && a.at.After(l.at.Add(-maxUnwritten)) && a.at.Before(l.at.Add(maxUnwritten))
			}) {
				t.Errorf("the call %s is lost at %v, although its gateway %d had no fault then: %v", a.id, a.at, a.node, h.notes)
			}
		}
		if w.Balance < 0 || w.Held != 0 {
			t.Errorf("the wallet of %s is %+v", u.name, w)
		}
	}
	t.Logf("%d calls were answered, %d of them lost; acts: %v", whole, lost, h.acts)
	for _, g := range nodes {
		g.verify()
	}
}
