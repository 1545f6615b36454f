package bodymem

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// clock is a clock that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

// interruptible is a ResponseWriter that records whether a read deadline was set.
type interruptible struct {
	http.ResponseWriter
	mu          sync.Mutex
	interrupted bool
}

func (w *interruptible) SetReadDeadline(time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.interrupted = true
	return nil
}

func (w *interruptible) wasInterrupted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.interrupted
}

// open opens a claim of an owner with this number of bytes. arrived of them have been received.
func open(t *testing.T, b *Budget, owner string, limits Limits, bytes, arrived int) (*Claim, *interruptible) {
	t.Helper()
	w := &interruptible{ResponseWriter: httptest.NewRecorder()}
	c := new(Claim)
	b.Open(c, w, owner, limits)
	if f := c.Resize(int64(bytes)); f != nil {
		t.Fatalf("%d bytes of %s are refused: %v", bytes, owner, f)
	}
	c.Received(arrived)
	return c, w
}

func TestAnOwnerHasAShareOfTheBudget(t *testing.T) {
	t.Parallel()
	b, limits := new(Budget), Limits{Total: 100, Share: 40}
	first, _ := open(t, b, "a", limits, 30, 30)
	second, _ := open(t, b, "a", limits, 10, 10)
	if f := second.Resize(11); f != shareFull {
		t.Errorf("beyond the share: %v", f)
	}
	open(t, b, "b", limits, 40, 40)
	third, _ := open(t, b, "c", limits, 20, 20)
	if f := third.Resize(21); f != full {
		t.Errorf("beyond the budget: %v", f)
	}
	if f := second.Resize(5); f != nil || b.Used() != 95 {
		t.Errorf("%v, %d bytes are used", f, b.Used())
	}
	first.Release()
	first.Release()
	if b.Used() != 65 {
		t.Errorf("after a release %d bytes are used", b.Used())
	}
	second.Hold(41)
	if b.Used() != 101 {
		t.Errorf("after Hold %d bytes are used", b.Used())
	}
}

func TestTheSlowestBodyLosesItsMemory(t *testing.T) {
	t.Parallel()
	times := &clock{time.Unix(1_800_000_000, 0)}
	b, limits := &Budget{Now: times.now}, Limits{Total: 100, Share: 60}
	slow, slowW := open(t, b, "a", limits, 30, 5)
	fast, fastW := open(t, b, "b", limits, 30, 25)
	whole, wholeW := open(t, b, "c", limits, 30, 1)
	if f := whole.Complete(); f != nil {
		t.Fatal(f)
	}
	fresh, _ := open(t, b, "d", limits, 10, 10)
	if f := fresh.Resize(11); f != full {
		t.Errorf("before any body is slow: %v", f)
	}
	times.at = times.at.Add(SlowAfter)
	newest, _ := open(t, b, "e", limits, 0, 0)
	if f := newest.Resize(20); f != nil || !slowW.wasInterrupted() || fastW.wasInterrupted() || wholeW.wasInterrupted() {
		t.Errorf("%v, interrupted: %v %v %v", f, slowW.wasInterrupted(), fastW.wasInterrupted(), wholeW.wasInterrupted())
	}
	if b.Used() != 90 {
		t.Errorf("%d bytes are used", b.Used())
	}
	for _, f := range []*fault.Fault{slow.Resize(1), slow.Complete()} {
		if f != lost {
			t.Errorf("the evicted body: %v", f)
		}
	}
	slow.Release()
	// The slowest body may be the one that needs memory.
	times.at = times.at.Add(SlowAfter)
	if f := newest.Resize(60); f != full || fastW.wasInterrupted() {
		t.Errorf("%v", f)
	}
	if f := fast.Complete(); f != nil {
		t.Error(f)
	}
}

func TestAFullShareEvictsOnlyBodiesOfItsOwner(t *testing.T) {
	t.Parallel()
	times := &clock{time.Unix(1_800_000_000, 0)}
	b, limits := &Budget{Now: times.now}, Limits{Total: 100, Share: 30}
	_, otherW := open(t, b, "other", limits, 30, 0)
	_, ownW := open(t, b, "own", limits, 30, 10)
	times.at = times.at.Add(time.Minute)
	newest, _ := open(t, b, "own", limits, 0, 0)
	if f := newest.Resize(30); f != nil || otherW.wasInterrupted() || !ownW.wasInterrupted() || b.Used() != 60 {
		t.Errorf("%v, interrupted: %v %v, %d bytes are used", f, otherW.wasInterrupted(), ownW.wasInterrupted(), b.Used())
	}
}

func TestACompleteClaimDoesNotUseItsResponse(t *testing.T) {
	t.Parallel()
	c, w := open(t, new(Budget), "a", Limits{Total: 1, Share: 1}, 1, 0)
	if f := c.Complete(); f != nil {
		t.Fatal(f)
	}
	c.Interrupt()
	if w.wasInterrupted() {
		t.Error("a complete body was interrupted")
	}
	new(Claim).Release() // the claim of a request without a body
}

// TestABudgetCountsTheMemoryOfItsClaims runs random steps on claims of several owners.
func TestABudgetCountsTheMemoryOfItsClaims(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := &clock{time.Unix(1_800_000_000, 0)}
		b, limits := &Budget{Now: now.now}, Limits{Total: 100, Share: 50}
		var claims []*Claim
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now.at = now.at.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "ms")) * time.Millisecond)
			i := rapid.IntRange(0, max(0, len(claims)-1)).Draw(t, "claim")
			switch step := rapid.IntRange(0, 5).Draw(t, "step"); {
			case step == 0 || len(claims) == 0:
				c := new(Claim)
				b.Open(c, nil, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "owner"), limits)
				claims = append(claims, c)
			case step == 1:
				claims[i].Release()
				claims = append(claims[:i], claims[i+1:]...)
			case step == 2:
				_ = claims[i].Complete()
			default:
				n := rapid.Int64Range(0, 60).Draw(t, "bytes")
				if f := claims[i].Resize(n); f == nil && claims[i].taken != n {
					t.Fatalf("the claim has %d bytes, want %d", claims[i].taken, n)
				}
				claims[i].Received(1)
			}
			var sum int64
			owners := make(map[*owner]int64)
			for _, c := range claims {
				sum += c.taken
				owners[c.owner] += c.taken
			}
			if b.Used() != sum || sum > limits.Total {
				t.Fatalf("the claims have %d bytes, the budget counts %d", sum, b.Used())
			}
			for o, want := range owners {
				if o.used != want || want > limits.Share {
					t.Fatalf("the claims of %s have %d bytes, the owner counts %d", o.name, want, o.used)
				}
			}
		}
		for _, c := range claims {
			c.Release()
		}
		if b.Used() != 0 {
			t.Fatalf("%d bytes are not released", b.Used())
		}
	})
}

func TestConcurrentClaimsAreAllReleased(t *testing.T) {
	t.Parallel()
	b, limits := new(Budget), Limits{Total: 1000, Share: 300}
	start := time.Now()
	b.Now = func() time.Time { return start.Add(time.Since(start) * 1e5) } // a fast clock, so that bodies are slow
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 500 {
				var c Claim
				b.Open(&c, &interruptible{ResponseWriter: httptest.NewRecorder()}, fmt.Sprint("owner ", (i+j)%5), limits)
				for size := int64(20); size <= 160 && c.Resize(size) == nil; size *= 2 {
					c.Received(j)
				}
				if j%3 == 0 {
					_ = c.Complete()
				}
				c.Release()
			}
		})
	}
	group.Wait()
	if b.Used() != 0 {
		t.Errorf("%d bytes are not released", b.Used())
	}
}
