package limit

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestStreamsHoldOverAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 4
		nodes := startNodes(t, 3, time.Millisecond)
		var open, most, served atomic.Int64
		traffic(nodes, 30*time.Second, 20*time.Millisecond, func(n *node) {
			r := ofAllNodes(Rates{Concurrent: limit})
			grant, refusal := n.Admit(time.Now(), r)
			if refusal == nil {
				refusal = n.Extend(time.Now(), &grant, 0, true)
			}
			if refusal != nil {
				if refusal.Err != nil || refusal.What != Concurrent {
					t.Errorf("refused with %+v", refusal)
				}
				return
			}
			served.Add(1)
			most.Store(max(most.Load(), open.Add(1)))
			time.Sleep(500 * time.Millisecond)
			open.Add(-1)
			grant.End(time.Now(), 0)
		})
		if most.Load() != limit {
			t.Errorf("%d streams at once, the limit is %d", most.Load(), limit)
		}
		if n := served.Load(); n < limit*60/2 {
			t.Errorf("%d streams in 30 s", n)
		}
	})
}

func TestStreamsAreFreedWhenANodeDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3, 0)
		r := ofAllNodes(Rates{Concurrent: 2})
		r.Concurrent = true
		other := Request{User: Subject{ID: "usr_2", Rates: Rates{Concurrent: 1}, OfAllNodes: true}, Concurrent: true}
		for range 2 {
			if _, refusal := nodes[1].Admit(time.Now(), r); refusal != nil {
				t.Fatal(refusal)
			}
		}
		if _, refusal := nodes[1].Admit(time.Now(), other); refusal != nil {
			t.Fatal(refusal)
		}
		if _, refusal := nodes[0].Admit(time.Now(), r); refusal == nil {
			t.Fatal("a third stream")
		}
		nodes[1].line.Cut(true)
		time.Sleep(5 * time.Second)
		for range 2 {
			if _, refusal := nodes[2].Admit(time.Now(), r); refusal != nil {
				t.Errorf("after the end of the node: %+v", refusal)
			}
		}
		err := nodes[0].store.View(t.Context(), func(reader storage.Reader) error {
			rec, err := levels.Get(reader, "usr_2")
			if err == nil && rec != nil && len(rec.Open) > 0 {
				t.Errorf("the dead node still has the streams %v", rec.Open)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// TestAStreamThatEndsWhileTheStoreIsGoneIsFreed cuts a node off, but not for so long that it ends.
func TestAStreamThatEndsWhileTheStoreIsGoneIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 2, 0)
		r := ofAllNodes(Rates{Concurrent: 1})
		r.Concurrent = true
		grant, refusal := nodes[0].Admit(time.Now(), r)
		if refusal != nil {
			t.Fatal(refusal)
		}
		nodes[0].line.Cut(true)
		grant.End(time.Now(), 0)
		time.Sleep(time.Second)
		if _, refusal := nodes[1].Admit(time.Now(), r); refusal == nil {
			t.Error("the other node knows of an end that the store was not told")
		}
		nodes[0].line.Cut(false)
		time.Sleep(2 * time.Second)
		if _, refusal := nodes[1].Admit(time.Now(), r); refusal != nil {
			t.Errorf("after the store is back: %+v", refusal)
		}
	})
}

func TestANodeThatIsCutOffAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := startNodes(t, 3, 0)
		r := ofAllNodes(Rates{Requests: PerSecond(1000)})
		if _, refusal := nodes[0].Admit(time.Now(), r); refusal != nil {
			t.Fatal(refusal)
		}
		nodes[0].line.Cut(true)
		if _, refusal := nodes[0].Admit(time.Now(), r); refusal != nil {
			t.Errorf("from the allotment: %+v", refusal)
		}
		time.Sleep(allotmentLife)
		if _, refusal := nodes[0].Admit(time.Now(), r); refusal == nil || refusal.Err == nil {
			t.Errorf("a second after the store is gone: %+v", refusal)
		}
	})
}

func TestUnlimitedAndLocalSubjectsTouchNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNodes(t, 1, 0)[0]
		n.line.Cut(true)
		if _, refusal := n.Admit(time.Now(), ofAllNodes(Rates{})); refusal != nil {
			t.Errorf("an unlimited key: %+v", refusal)
		}
		if refusal := n.Take(time.Now(), "192.0.2.1", 1, PerMinute(1)); refusal != nil {
			t.Errorf("an address: %+v", refusal)
		}
		if refusal := n.Take(time.Now(), "192.0.2.1", 1, PerMinute(1)); refusal == nil {
			t.Error("the limit of an address does not hold on its node")
		}
	})
}

func TestIdleSubjectsOfAllNodesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := startNodes(t, 1, 0)[0]
		for i := range 1000 {
			if refusal := n.TakeOfAllNodes(time.Now(), string(rune('a'+i%26))+time.Duration(i).String(), 1, PerMinute(60)); refusal != nil {
				t.Fatal(refusal)
			}
			time.Sleep(10 * time.Millisecond)
		}
		n.shared.mu.Lock()
		defer n.shared.mu.Unlock()
		if len(n.shared.shares) > 400 {
			t.Errorf("the node remembers %d subjects", len(n.shared.shares))
		}
	})
}
