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

// interrupted is a ResponseWriter that notes its read deadline.
type interrupted struct {
	http.ResponseWriter
	mu sync.Mutex
	by bool
}

func (w *interrupted) SetReadDeadline(time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by = true
	return nil
}

func (w *interrupted) was() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.by
}

// open opens a claim of an owner that takes bytes, of which some have arrived.
func open(t *testing.T, b *Budget, owner string, limits Limits, bytes, arrived int) (*Claim, *interrupted) {
	t.Helper()
	w := &interrupted{ResponseWriter: httptest.NewRecorder()}
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
		t.Errorf("%v, %d are taken", f, b.Used())
	}
	first.Release()
	first.Release()
	if b.Used() != 65 {
		t.Errorf("after a release %d are taken", b.Used())
	}
	second.Hold(41)
	if b.Used() != 101 {
		t.Errorf("after Hold %d are taken", b.Used())
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
	if f := newest.Resize(20); f != nil || !slowW.was() || fastW.was() || wholeW.was() {
		t.Errorf("%v, interrupted: %v %v %v", f, slowW.was(), fastW.was(), wholeW.was())
	}
	if b.Used() != 90 {
		t.Errorf("%d are taken", b.Used())
	}
	for _, f := range []*fault.Fault{slow.Resize(1), slow.Complete()} {
		if f != lost {
			t.Errorf("the evicted body: %v", f)
		}
	}
	slow.Release()
	// The body that needs memory may itself be the slowest.
	times.at = times.at.Add(SlowAfter)
	if f := newest.Resize(60); f != full || fastW.was() {
		t.Errorf("%v", f)
	}
	if f := fast.Complete(); f != nil {
		t.Error(f)
	}
}

func TestAFullShareTakesMemoryOnlyFromItsOwner(t *testing.T) {
	t.Parallel()
	times := &clock{time.Unix(1_800_000_000, 0)}
	b, limits := &Budget{Now: times.now}, Limits{Total: 100, Share: 30}
	_, otherW := open(t, b, "other", limits, 30, 0)
	_, ownW := open(t, b, "own", limits, 30, 10)
	times.at = times.at.Add(time.Minute)
	newest, _ := open(t, b, "own", limits, 0, 0)
	if f := newest.Resize(30); f != nil || otherW.was() || !ownW.was() || b.Used() != 60 {
		t.Errorf("%v, interrupted: %v %v, %d are taken", f, otherW.was(), ownW.was(), b.Used())
	}
}

func TestNothingUsesAResponseAfterItsClaimIsReleased(t *testing.T) {
	t.Parallel()
	c, w := open(t, new(Budget), "a", Limits{Total: 1, Share: 1}, 1, 0)
	if f := c.Complete(); f != nil {
		t.Fatal(f)
	}
	c.Interrupt()
	if w.was() {
		t.Error("it is interrupted")
	}
	new(Claim).Release() // of a request without a body
}

// TestABudgetCountsTheMemoryOfItsClaims runs claims of several owners in any order.
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
					t.Fatalf("%d are taken of %d", claims[i].taken, n)
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
				t.Fatalf("%d are taken, %d are counted", sum, b.Used())
			}
			for o, has := range owners {
				if o.used != has || has > limits.Share {
					t.Fatalf("%s has %d, %d are counted", o.name, has, o.used)
				}
			}
		}
		for _, c := range claims {
			c.Release()
		}
		if b.Used() != 0 {
			t.Fatalf("%d are not released", b.Used())
		}
	})
}

func TestConcurrentClaimsAreAllReleased(t *testing.T) {
	t.Parallel()
	b, limits := new(Budget), Limits{Total: 1000, Share: 300}
	start := time.Now()
	b.Now = func() time.Time { return start.Add(time.Since(start) * 1e5) } // so that bodies are soon slow
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 500 {
				var c Claim
				b.Open(&c, &interrupted{ResponseWriter: httptest.NewRecorder()}, fmt.Sprint("owner ", (i+j)%5), limits)
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
		t.Errorf("%d are not released", b.Used())
	}
}
