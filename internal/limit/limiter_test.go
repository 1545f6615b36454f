package limit

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestIdleSubjectsAreForgotten(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	now := start
	for i := range 200_000 {
		now = now.Add(time.Millisecond)
		c := ofKey(Rates{Requests: PerSecond(10), Units: PerMinute(60_000), Concurrent: 1})
		c.Key.ID = "key_" + strconv.Itoa(i)
		c.Units, c.Concurrent = 1000, true
		g := admit(t, limiter, now, c)
		g.End(now, 1000) // idle after a second, when about 1000 other subjects have been added
	}
	if n := limiter.Len(); n > 4000 {
		t.Errorf("%d subjects are remembered, but only 1000 are not idle", n)
	}
}

func TestRefusedSubjectsAreForgotten(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	user := Subject{ID: "usr_1", Rates: Rates{Concurrent: 1}}
	admit(t, limiter, start, Request{User: user, Concurrent: true})
	for i := range 20_000 {
		key := Subject{ID: "key_" + strconv.Itoa(i), Rates: Rates{Requests: PerSecond(1)}}
		refuse(t, limiter, start, Request{Key: key, User: user, Concurrent: true}, Concurrent, time.Second)
	}
	if n := limiter.Len(); n > 1000 {
		t.Errorf("%d subjects are remembered, but only one is not idle", n)
	}
}

func TestBusySubjectsAreNotForgotten(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	open := ofKey(Rates{Concurrent: 1})
	open.Concurrent = true
	g := admit(t, limiter, start, open)
	indebted := ofKey(Rates{Units: PerMinute(1)})
	indebted.Key.ID, indebted.Units = "key_indebted", 1000 // one unit is refilled per minute
	admitted := admit(t, limiter, start, indebted)
	admitted.End(start, 1000)

	now := start.Add(time.Minute)
	for i := range 50_000 {
		other := ofKey(Rates{Requests: PerSecond(1000)})
		other.Key.ID = fmt.Sprint("other ", i)
		now = now.Add(time.Microsecond)
		ended := admit(t, limiter, now, other)
		ended.End(now, 0)
	}
	refuse(t, limiter, now, open, Concurrent, time.Second)
	refuse(t, limiter, now, indebted, Units, start.Add(1000*time.Minute).Sub(now))
	g.End(now, 0)
	admit(t, limiter, now, open)
}

// TestANewSubjectIsNotSweptByItsOwnRequest admits requests whose two subjects may be in one shard.
// Adding the second subject sweeps the shard, but must not remove the first.
func TestANewSubjectIsNotSweptByItsOwnRequest(t *testing.T) {
	t.Parallel()
	for i := range 2000 {
		limiter := NewRateLimiter()
		r := Rates{Requests: PerSecond(1)}
		c := Request{Key: Subject{ID: "key_" + strconv.Itoa(i), Rates: r}, User: Subject{ID: "usr_" + strconv.Itoa(i), Rates: r}}
		admit(t, limiter, start, c)
		if n := limiter.Len(); n != 2 {
			t.Fatalf("of a key and its user, %d subjects are remembered", n)
		}
		refuse(t, limiter, start, c, Requests, time.Second)
	}
}

func TestConcurrentRequestsDoNotExceedTheLimit(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	const limit, keys = 100, 4
	user := Subject{ID: "usr_1", Rates: Rates{Requests: PerSecond(limit), Units: PerMinute(10 * limit), Concurrent: limit}}
	var admitted atomic.Int64
	grants := make(chan Grant, limit+1)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range limit {
				// Half of the requests swap key and user, so that deadlocks would be found.
				c := Request{Key: Subject{ID: "key_" + strconv.Itoa((caller+i)%keys), Rates: Rates{Requests: PerSecond(limit)}}, User: user, Units: 10, Concurrent: true}
				if caller%2 == 0 {
					c.Key, c.User = c.User, c.Key
				}
				if g, refused := limiter.Admit(start, c); refused == nil {
					if admitted.Add(1) <= limit {
						grants <- g
					}
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n != limit {
		t.Fatalf("%d requests were admitted, want %d", n, limit)
	}
	close(grants)
	var enders sync.WaitGroup
	for range 8 {
		enders.Go(func() {
			for g := range grants {
				g.End(start, 0)
			}
		})
	}
	enders.Wait()
	got := admit(t, limiter, start.Add(time.Second), Request{User: user, Concurrent: true}).Status
	if got.Concurrent.Remaining != limit-1 || got.Units.Remaining != 10*limit || got.Requests.Remaining != limit-1 {
		t.Errorf("after all requests have ended, the status is %+v", got)
	}
}

func full(id string) Subject {
	return Subject{ID: id, Rates: Rates{Requests: PerSecond(1_000_000), Units: PerMinute(1_000_000_000), Concurrent: 1000}}
}

func TestAdmittingASubjectThatExistsAllocatesNothing(t *testing.T) {
	limiter := NewRateLimiter()
	c := Request{Key: full("key_1"), User: full("usr_1"), Units: 10, Concurrent: true}
	now := start
	if n := testing.AllocsPerRun(100, func() {
		now = now.Add(time.Millisecond)
		g, refused := limiter.Admit(now, c)
		if refused != nil {
			t.Fatal(refused)
		}
		g.End(now, 5)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAdmit(b *testing.B) {
	for _, c := range []struct {
		name string
		call Request
	}{
		{"no limits", Request{Key: Subject{ID: "key_1"}, User: Subject{ID: "usr_1"}}},
		{"a key's requests", Request{Key: Subject{ID: "key_1", Rates: Rates{Requests: PerSecond(1_000_000)}}, User: Subject{ID: "usr_1"}}},
		{"all of both", Request{Key: full("key_1"), User: full("usr_1"), Units: 10, Concurrent: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			limiter, now := NewRateLimiter(), start
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				g, refused := limiter.Admit(now, c.call)
				if refused != nil {
					b.Fatal(refused)
				}
				g.End(now, 5)
			}
		})
	}
}
