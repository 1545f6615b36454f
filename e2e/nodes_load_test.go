package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage/postgres/postgrestest"
)

var nodesLoad = flag.Duration("nodes.load", 0, "how long each part of the load on three gateways of one database lasts; 0: the test is skipped")

// TestLoadOfThreeGateways measures the charged calls per second of three gateways, and the latency of
// a call at 300 calls per second. Everything runs on one machine.
func TestLoadOfThreeGateways(t *testing.T) {
	if *nodesLoad == 0 {
		t.Skip("no -nodes.load")
	}
	b := newBackend(t, answerCalls)
	server := postgrestest.StartDurable(t)
	nodes := cluster(t, server, 3, priced(b, salesOptions(planPrice)), b)
	const users, connections = 96, 96
	keys := make([]string, users)
	for i := range keys {
		u := nodes[i%len(nodes)].newGatewayUser(fmt.Sprintf("user%d", i))
		u.credit("1000")
		keys[i] = u.key
	}
	lone := newGateway(t, priced(b, salesOptions(planPrice)), b)
	lone.start()
	alone := lone.newGatewayUser("alone")
	alone.credit("1000")
	for _, g := range nodes {
		g.awaitKey(keys[users-1])
	}
	transport := newTransport(http1)
	transport.MaxIdleConnsPerHost = 2 * connections
	defer transport.CloseIdleConnections()
	call := func(g *gateway, key string) time.Duration {
		began := time.Now()
		a := g.sendOver(transport, g.request(t.Context(), "/v1/messages", callBodies["/v1/messages"], "Authorization", "Bearer "+key))
		if a.Status != http.StatusOK {
			t.Errorf("a call got %d %.200s %v", a.Status, a.Body, a.Err)
		}
		return time.Since(began)
	}
	saturate := func(key func(i int) string) float64 {
		ctx, stop := context.WithTimeout(t.Context(), *nodesLoad)
		defer stop()
		var calls atomic.Int64
		var all sync.WaitGroup
		began := time.Now()
		for i := range connections {
			all.Go(func() {
				for ctx.Err() == nil && !t.Failed() {
					call(nodes[i%len(nodes)], key(i))
					calls.Add(1)
				}
			})
		}
		all.Wait()
		return float64(calls.Load()) / time.Since(began).Seconds()
	}
	steady := func(gateways []*gateway, key func(i int) string) (p50, p99 time.Duration) {
		var mu sync.Mutex
		var took []time.Duration
		var all sync.WaitGroup
		tick := time.NewTicker(time.Second / 300)
		defer tick.Stop()
		began := time.Now()
		for i := 0; time.Since(began) < *nodesLoad; i++ {
			<-tick.C
			all.Go(func() {
				d := call(gateways[i%len(gateways)], key(i))
				mu.Lock()
				defer mu.Unlock()
				took = append(took, d)
			})
		}
		all.Wait()
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	spread := func(i int) string { return keys[i%users] }
	one := func(int) string { return keys[0] }
	steady(nodes, spread) // warm
	for range 3 {
		t.Logf("%.0f calls/s, a wallet each", saturate(spread))
		t.Logf("%.0f calls/s, one wallet", saturate(one))
	}
	for range 3 {
		p50, p99 := steady([]*gateway{lone}, func(int) string { return alone.key })
		t.Logf("300/s at one gateway over storage badger: p50 %v, p99 %v", p50, p99)
		p50, p99 = steady(nodes, spread)
		t.Logf("300/s at three gateways over storage postgres: p50 %v, p99 %v", p50, p99)
	}
	nodes[0].verify()
}
