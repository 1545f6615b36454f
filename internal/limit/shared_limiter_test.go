package limit

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// node is a node of a test.
type node struct {
	*RateLimiter
	line  *storagetest.Line
	store *storage.Store
}

func startNodes(t *testing.T, n int, slow time.Duration) []*node {
	t.Helper()
	open := memory.NewShared()
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = &node{line: &storagetest.Line{Engine: open(), Latency: slow}}
		nodes[i].store = storage.New(nodes[i].line, storage.Options{})
		t.Cleanup(func() { _ = nodes[i].store.Close() })
		if err := nodes[i].store.Join(t.Context(), storage.Node{}); err != nil {
			t.Fatal(err)
		}
		nodes[i].RateLimiter = Open(nodes[i].store)
		nodes[i].store.Follow(storage.Follower{
			OnTopics: func(context.Context, []string) error { return nil },
			OnEnded:  nodes[i].EndEpoch,
		})
	}
	time.Sleep(time.Second)
	t.Cleanup(func() { // the levels and their index are consistent after each test
		for _, n := range nodes {
			if n.line.IsCut() {
				continue
			}
			if err := n.store.View(context.Background(), func(r storage.Reader) error {
				return levels.Verify(r, func(l *level) string { return l.Subject }, t.Errorf)
			}); err != nil {
				t.Error(err)
			}
		}
	})
	return nodes
}

// everywhere returns a request of a key of all nodes.
func ofAllNodes(r Rates) Request {
	return Request{Key: Subject{ID: "key_1", Rates: r, OfAllNodes: true}, User: Subject{ID: "usr_1", OfAllNodes: true}}
}

// admissions is when requests were admitted, in the order of the clock.
type admissions struct {
	sync.Mutex
	at     []time.Time
	units  []int64
	failed int // refused because of the store
}

func (a *admissions) add(units int64) {
	a.Lock()
	defer a.Unlock()
	a.at, a.units = append(a.at, time.Now()), append(a.units, units)
}

// check checks that no span of time has more than a bucket that is full at its beginning allows, and
// one allotment.
func (a *admissions) check(t *testing.T, w Window, allotment int64) (total int64) {
	t.Helper()
	for i := range a.at {
		sum := int64(0)
		for j := i; j < len(a.at); j++ {
			sum += a.units[j]
			if most := w.Limit + allotment + int64(float64(w.Limit)*float64(a.at[j].Sub(a.at[i]))/float64(w.Period)); sum > most {
				t.Fatalf("%d in %v, the limit is %d", sum, a.at[j].Sub(a.at[i]), most)
			}
		}
		total += a.units[i]
	}
	return total
}

// traffic sends requests to random nodes, one in each pause on average, until a time has passed.
func traffic(nodes []*node, span, pause time.Duration, request func(n *node)) {
	var sent sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(span); time.Now().Before(end); time.Sleep(time.Duration(random.Int64N(int64(2 * pause)))) {
		n := nodes[random.IntN(len(nodes))]
		sent.Go(func() { request(n) })
	}
	sent.Wait()
}

func TestARateHoldsOverAllNodes(t *testing.T) {
	const limit, allotment, span = 10, 2, 20 * time.Second
	for what, c := range map[string]struct{ slow, pause time.Duration }{
		"many requests":                   {0, 5 * time.Millisecond},
		"many requests, a slow store":     {20 * time.Millisecond, 5 * time.Millisecond},
		"about as many as are allowed":    {5 * time.Millisecond, 100 * time.Millisecond},
		"fewer requests than are allowed": {5 * time.Millisecond, 150 * time.Millisecond},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := startNodes(t, 3, c.slow)
				var admitted admissions
				var refused atomic.Int64
				traffic(nodes, span, c.pause, func(n *node) {
					grant, refusal := n.Admit(time.Now(), ofAllNodes(Rates{Requests: PerSecond(limit)}))
					switch {
					case refusal == nil:
						admitted.add(1)
						grant.End(time.Now(), 0)
					case refusal.Err != nil:
						t.Error(refusal.Err)
					case refusal.What != Requests || refusal.OfUser || refusal.Limit != limit || refusal.RetryAfter <= 0:
						t.Errorf("refused with %+v", refusal)
					default:
						refused.Add(1)
					}
				})
				total := admitted.check(t, PerSecond(limit), allotment)
				possible := min(int64(limit*(span/time.Second)+limit), total+refused.Load())
				if total < possible*9/10 {
					t.Errorf("admitted %d of %d possible requests", total, possible)
				}
				if c.pause > time.Second/limit && refused.Load() > 0 && total < possible*99/100 {
					t.Errorf("refused %d of %d requests below the limit", refused.Load(), total+refused.Load())
				}
				// After the first burst, each second has at most the limit and one allotment.
				if c.pause < time.Second/limit/2 {
					for i, first := range admitted.at {
						if first.Sub(admitted.at[0]) < 2*time.Second {
							continue
						}
						n := 0
						for _, at := range admitted.at[i:] {
							if at.Sub(first) < time.Second {
								n++
							}
						}
						if n > limit+allotment {
							t.Fatalf("%d requests in a second of steady traffic", n)
						}
					}
				}
			})
		})
	}
}

// TestAFullBucketAdmitsAllItsRequests sends as many requests as a full bucket allows.
func TestAFullBucketAdmitsAllItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 1000
		nodes := startNodes(t, 3, 0)
		for what, requests := range map[string]func(request func(n *node)){
			"in turn": func(request func(n *node)) {
				for i := range limit {
					request(nodes[i%3])
				}
			},
			"at once on one node": func(request func(n *node)) {
				var all sync.WaitGroup
				for range limit {
					all.Go(func() { request(nodes[1]) })
				}
				all.Wait()
			},
		} {
			var admitted atomic.Int64
			requests(func(n *node) {
				r := ofAllNodes(Rates{Requests: PerSecond(limit)})
				r.Key.ID = what
				if _, refusal := n.Admit(time.Now(), r); refusal == nil {
					admitted.Add(1)
				}
			})
			if admitted.Load() < limit-limit/100 {
				t.Errorf("%s: admitted %d of %d", what, admitted.Load(), limit)
			}
		}
	})
}

// TestAHighRateIsUsedUp overloads a limit that needs many admissions in the time of one update.
func TestAHighRateIsUsedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 2000
		nodes := startNodes(t, 3, 10*time.Millisecond)
		var admitted atomic.Int64
		began := time.Now()
		traffic(nodes, 3*time.Second, 200*time.Microsecond, func(n *node) {
			grant, refusal := n.Admit(time.Now(), ofAllNodes(Rates{Requests: PerSecond(limit)}))
			switch {
			case refusal == nil:
				admitted.Add(1)
				grant.End(time.Now(), 0)
			case refusal.Err != nil:
				t.Error(refusal.Err)
			}
		})
		most := limit + int64(limit*time.Since(began).Seconds())
		if n := admitted.Load(); n > most || n < most*8/10 {
			t.Errorf("admitted %d of %d", n, most)
		}
	})
}

func TestTokensHoldOverAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, used = 6000, 30
		nodes := startNodes(t, 3, time.Millisecond)
		var admitted admissions
		var most atomic.Int64
		traffic(nodes, 2*time.Minute, 50*time.Millisecond, func(n *node) {
			r := ofAllNodes(Rates{Units: PerMinute(limit)})
			r.Units = 50 // the estimate is high
			grant, refusal := n.Admit(time.Now(), r)
			if refusal == nil && n.Extend(time.Now(), &grant, 60, false) == nil {
				admitted.add(used)
				time.Sleep(time.Second)
				grant.End(time.Now(), used)
				most.Add(used)
			}
		})
		total := admitted.check(t, PerMinute(limit), 0)
		if total < 3*limit*9/10 {
			t.Errorf("used %d tokens in two minutes, the limit allows %d", total, 3*limit)
		}
	})
}

// TestARequestAboveTheLimitBegins proves that one which needs more than the limit leaves a debt, as
// on a lone node, also if it is extended.
func TestARequestAboveTheLimitBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2, 0)
		r := ofAllNodes(Rates{Units: PerMinute(60)})
		r.Units = 40
		grant, refusal := nodes[0].Admit(time.Now(), r)
		if refusal != nil {
			t.Fatal(refusal)
		}
		if refusal := nodes[0].Extend(time.Now(), &grant, 200, false); refusal != nil {
			t.Fatalf("extended from 40 to 200: %+v", refusal)
		}
		grant.End(time.Now(), 100)
		time.Sleep(time.Second)
		for range 2 {
			if refusal = nodes[1].TakeOfAllNodes(time.Now(), "key_1", 1, PerMinute(60)); refusal == nil || refusal.What != Units || refusal.RetryAfter < 38*time.Second {
				t.Errorf("another node with a debt of 40: %+v", refusal)
			}
		}
		time.Sleep(42 * time.Second)
		if refusal = nodes[1].TakeOfAllNodes(time.Now(), "key_1", 1, PerMinute(60)); refusal != nil {
			t.Errorf("after the debt: %+v", refusal)
		}
	})
}

func TestARefusedRequestUsesNothingOfEitherSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2, 0)
		both := ofAllNodes(Rates{Requests: PerMinute(3)})
		both.User.Rates = Rates{Concurrent: 1}
		both.Concurrent = true
		first, refusal := nodes[0].Admit(time.Now(), both)
		if refusal != nil {
			t.Fatal(refusal)
		}
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			if _, refusal := nodes[1].Admit(time.Now(), both); refusal == nil || refusal.What != Concurrent || !refusal.OfUser {
				t.Fatalf("a second stream: %+v", refusal)
			}
		}
		first.End(time.Now(), 0)
		time.Sleep(time.Second)
		for i := range 2 { // the refused requests have used nothing of the key
			grant, refusal := nodes[1].Admit(time.Now(), both)
			if refusal != nil {
				t.Fatalf("request %d: %+v", i, refusal)
			}
			grant.End(time.Now(), 0)
			time.Sleep(time.Second)
		}
	})
}
