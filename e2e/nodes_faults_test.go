package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
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
// and crashes their database while users call, pay and submit tasks at all of them. Afterwards each
// acknowledged payment is recorded once, and each task ran once and was charged once. Each answered call
// is charged once, or its settlement was lost within maxUnwritten of a fault of its gateway. The test
// runs alone, because a gateway without CPU time is ended.
func TestFaultsOfThreeGatewaysKeepTheLedgerRight(t *testing.T) {
	b, u := newBackend(t, answerCalls), newMockService(t)
	r := newReceiver(t, u.checkpoints)
	s, tasks := priced(b, salesOptions(planPrice)), generationSite(u, r, "media off")
	s.Routes, s.Limits, s.Money = tasks.Routes, tasks.Limits, s.Money+tasks.Money
	server := postgrestest.Start(t)
	nodes := cluster(t, server, 3, s, b, u.backend, r.backend)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	h := &harm{server: server, dsn: server.DSN("test1"), nodes: nodes, random: rand.New(rand.NewPCG(seed, 0)), acts: map[string]int{}}

	users := make([]*roamingUser, 6)
	for i := range users {
		users[i] = newRoamingUser(nodes, i)
	}
	collector := newRoamingUser(nodes, len(users))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, c := range users {
		running.Go(func() { c.callUntil(ctx) })
		running.Go(func() { c.payUntil(ctx) })
	}
	running.Go(func() { collector.submitUntil(ctx) })
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

	whole, lost, payments := 0, 0, 0
	for _, c := range users {
		c.checkPaid()
		lost += c.checkCalls(h)
		whole, payments = whole+len(c.calls), payments+len(c.payments)
	}
	ended := collector.checkTasks(u, r)
	t.Logf("%d calls were answered, %d of them lost; %d payments; tasks: %v; acts: %v", whole, lost, payments, ended, h.acts)
	for _, g := range nodes {
		g.verify()
	}
}
