package limit

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// ofKey returns a request of a key with these rates and a user without limits.
func ofKey(r Rates) Request {
	return Request{Key: Subject{ID: "key_1", Rates: r}, User: Subject{ID: "usr_1"}}
}

// admit begins a request, which must be admitted.
func admit(t *testing.T, limiter *RateLimiter, now time.Time, c Request) Grant {
	t.Helper()
	g, refused := limiter.Admit(now, c)
	if refused != nil {
		t.Fatalf("%+v was refused at %v: %+v", c, now.Sub(start), refused)
	}
	return g
}

// refuse begins a request, which must be refused with this limit and RetryAfter.
func refuse(t *testing.T, limiter *RateLimiter, now time.Time, c Request, what Kind, wait time.Duration) *Refusal {
	t.Helper()
	_, refused := limiter.Admit(now, c)
	if refused == nil || refused.What != what || refused.RetryAfter != wait {
		t.Fatalf("at %v, the refusal of %+v is %+v; want %v with a wait of %v", now.Sub(start), c, refused, what, wait)
	}
	return refused
}

func TestRequestsPerSecond(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Requests: PerSecond(3)})
	for range 3 {
		admit(t, limiter, start, c)
	}
	third := time.Second/3 + 1 // rounded up
	refuse(t, limiter, start, c, Requests, third)
	refuse(t, limiter, start.Add(third-1), c, Requests, 1)
	admit(t, limiter, start.Add(third), c)
	refuse(t, limiter, start.Add(third), c, Requests, 2*time.Second/3+1-third)
	// After a long pause, at most the requests of one second are available.
	later := start.Add(time.Hour)
	for range 3 {
		admit(t, limiter, later, c)
	}
	refuse(t, limiter, later, c, Requests, third)
}

func TestUnitsPerMinute(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Units: PerMinute(60)})
	c.Units = 40
	first := admit(t, limiter, start, c)
	refuse(t, limiter, start, c, Units, 20*time.Second)

	first.End(start, 10) // 50 are left
	second := admit(t, limiter, start, c)
	second.End(start, 100) // 50 are owed
	refuse(t, limiter, start, c, Units, 90*time.Second)
	admit(t, limiter, start.Add(90*time.Second), c)
}

func TestARequestAboveTheLimitNeedsAFullBucket(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Units: PerMinute(60)})
	small, large := c, c
	small.Units, large.Units = 1, 600
	g := admit(t, limiter, start, small)
	refuse(t, limiter, start, large, Units, time.Second)
	now := start.Add(time.Second)
	admit(t, limiter, now, large)
	refuse(t, limiter, now, small, Units, 541*time.Second)
	g.End(now, 1)
	refuse(t, limiter, now, Request{Key: c.Key}, Units, 541*time.Second) // expects no units, but needs at least one
}

func TestConcurrentRequests(t *testing.T) {
	t.Parallel()
	limiter, plain := NewRateLimiter(), ofKey(Rates{Concurrent: 2})
	stream := plain
	stream.Concurrent = true
	first, _ := admit(t, limiter, start, stream), admit(t, limiter, start, stream)
	refuse(t, limiter, start, stream, Concurrent, time.Second)
	admit(t, limiter, start, plain)

	first.End(start, 0)
	first.End(start, 0) // has no effect the second time
	admit(t, limiter, start, stream)
	refuse(t, limiter, start.Add(24*time.Hour), stream, Concurrent, time.Second)
}

func TestARefusedRequestUsesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, user Rates
		what      Kind
		ofUser    bool
	}{
		"the key's requests":  {Rates{Requests: PerSecond(1)}, Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Requests, false},
		"the user's requests": {Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Rates{Requests: PerSecond(1)}, Requests, true},
		"the key's tokens":    {Rates{Units: PerMinute(1)}, Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Units, false},
		"the user's tokens":   {Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Rates{Units: PerMinute(1)}, Units, true},
		"the key's streams":   {Rates{Concurrent: 1}, Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Concurrent, false},
		"the user's streams":  {Rates{Requests: PerSecond(2), Units: PerMinute(2), Concurrent: 2}, Rates{Concurrent: 1}, Concurrent, true},
	} {
		limiter := NewRateLimiter()
		both := Request{Key: Subject{ID: "key_1", Rates: c.key}, User: Subject{ID: "usr_1", Rates: c.user}, Units: 1, Concurrent: true}
		admit(t, limiter, start, both)
		for range 5 {
			_, refused := limiter.Admit(start, both)
			if refused == nil || refused.What != c.what || refused.OfUser != c.ofUser {
				t.Fatalf("%s: the refusal is %+v", name, refused)
			}
		}
		// The other subject has exactly one more request.
		other := both
		if c.ofUser {
			other.User = Subject{ID: "usr_2"}
		} else {
			other.Key = Subject{ID: "key_2"}
		}
		admit(t, limiter, start, other)
		if _, refused := limiter.Admit(start, other); refused == nil {
			t.Errorf("%s: a third request was admitted", name)
		}
	}
}

func TestARefusalHasTheLongestWait(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	c := Request{
		Key: Subject{ID: "key_1", Rates: Rates{Requests: PerSecond(1), Units: PerMinute(1)}}, User: Subject{ID: "usr_1", Rates: Rates{Units: PerMinute(2), Concurrent: 1}},
		Units: 1, Concurrent: true,
	}
	admit(t, limiter, start, c)
	r := refuse(t, limiter, start, c, Units, time.Minute)
	if r.OfUser || r.Limit != 1 || r.Status.Units != (WindowStatus{1, 0, time.Minute}) {
		t.Errorf("the refusal is %+v", r)
	}
	refuse(t, limiter, start.Add(time.Minute), c, Concurrent, time.Second)
}

func TestSubjectsWithoutLimitsAreNotStored(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	c := Request{Key: Subject{ID: "key_1"}, User: Subject{ID: "usr_1"}, Units: math.MaxInt64, Concurrent: true}
	for range 1000 {
		g := admit(t, limiter, start, c)
		if g.Status != (RateLimitStatus{}) {
			t.Fatalf("without limits the status is %+v", g.Status)
		}
		g.End(start, math.MaxInt64)
	}
	if n := limiter.Len(); n != 0 {
		t.Errorf("%d subjects are remembered", n)
	}
	c.Key.Rates.Requests = PerSecond(1)
	admit(t, limiter, start, c)
	if n := limiter.Len(); n != 1 {
		t.Errorf("of a limited key and an unlimited user, %d subjects are remembered", n)
	}
}

func TestChangedLimitsApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	rates := func(n int64) Request { return ofKey(Rates{Requests: PerSecond(n)}) }
	admit(t, limiter, start, rates(100))
	admit(t, limiter, start, rates(1)) // 99 remain, of which the new limit allows one
	refuse(t, limiter, start, rates(1), Requests, time.Second)
	refuse(t, limiter, start, rates(1000), Requests, time.Millisecond)
	admit(t, limiter, start, rates(0))

	stream := ofKey(Rates{Concurrent: 2})
	stream.Concurrent = true
	admit(t, limiter, start, stream)
	admit(t, limiter, start, stream)
	stream.Key.Rates.Concurrent = 1
	refuse(t, limiter, start, stream, Concurrent, time.Second)
	stream.Key.Rates.Concurrent = 3
	admit(t, limiter, start, stream)

	// A limit that is added while a request is open counts its usage.
	unlimited := Request{Key: Subject{ID: "key_2", Rates: Rates{Concurrent: 1}}, Units: 50}
	g := admit(t, limiter, start, unlimited)
	limited := Request{Key: Subject{ID: "key_2", Rates: Rates{Units: PerMinute(60)}}, Units: 10}
	admit(t, limiter, start, limited)
	g.End(start, 50)
	refuse(t, limiter, start, limited, Units, 10*time.Second)
}

func TestSettingTheClockBackBlocksNoSubject(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Requests: PerSecond(1)})
	admit(t, limiter, start, c)
	back := start.Add(-time.Hour)
	refuse(t, limiter, back, c, Requests, time.Second)
	admit(t, limiter, back.Add(time.Second), c)
}

func TestReorderedClockReadingsAddNothing(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Requests: PerSecond(10)})
	for range 10 {
		admit(t, limiter, start, c)
	}
	early, late := start, start.Add(90*time.Millisecond)
	for range 20 {
		refuse(t, limiter, late, c, Requests, 10*time.Millisecond)
		refuse(t, limiter, early, c, Requests, 10*time.Millisecond)
	}
	admit(t, limiter, late.Add(10*time.Millisecond), c)
}

func TestTheStatusIsThatOfTheTighterSubject(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	c := Request{
		Key:   Subject{ID: "key_1", Rates: Rates{Requests: PerSecond(10), Units: PerMinute(600)}},
		User:  Subject{ID: "usr_1", Rates: Rates{Requests: PerSecond(5), Units: PerMinute(6000), Concurrent: 3}},
		Units: 60, Concurrent: true,
	}
	got := admit(t, limiter, start, c).Status
	want := RateLimitStatus{
		Requests:   WindowStatus{5, 4, 200 * time.Millisecond},
		Units:      WindowStatus{600, 540, 6 * time.Second},
		Concurrent: WindowStatus{3, 2, 0},
	}
	if got != want {
		t.Errorf("the status is %+v, want %+v", got, want)
	}
	c.Units = 6000
	if g := admit(t, limiter, start.Add(time.Hour), c); g.Status.Units.Remaining != 0 || g.Status.Units.Reset != 10*time.Minute {
		t.Errorf("with a debt, the status is %+v", g.Status.Units)
	}
}

func TestExtremeNumbersDoNotOverflow(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1, 1000, math.MaxInt64} {
		limiter, c := NewRateLimiter(), ofKey(Rates{Requests: PerSecond(rate), Units: PerMinute(rate), Concurrent: rate})
		c.Units = math.MaxInt64
		g := admit(t, limiter, start, c)
		g.End(start, math.MaxInt64)
		g = Grant{}
		if _, refused := limiter.Admit(start, c); refused == nil || refused.What != Units || refused.RetryAfter <= 0 {
			t.Errorf("rate %d: after all tokens were used, the refusal is %+v", rate, refused)
		}
		c.Units = math.MinInt64
		if _, refused := limiter.Admit(time.Unix(0, math.MaxInt64), c); refused != nil && rate > 1000 {
			t.Errorf("rate %d: after centuries, the refusal is %+v", rate, refused)
		}
	}
}

// TestNoWindowExceedsItsLimit checks that at most the available and the refilled units are admitted,
// and that the RetryAfter of a refusal is exact.
func TestNoWindowExceedsItsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limiter := NewRateLimiter()
		c := ofKey(Rates{Units: PerMinute(rapid.Int64Range(1, 1_000_000).Draw(t, "rate"))})
		rate := c.Key.Rates.Units.Limit
		now, used := start, int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "pause")))
			c.Units = rapid.Int64Range(1, rate).Draw(t, "tokens")
			g, refused := limiter.Admit(now, c)
			if refused != nil {
				if _, early := limiter.Admit(now.Add(refused.RetryAfter-1), c); early == nil {
					t.Fatalf("a request was admitted before its RetryAfter of %v", refused.RetryAfter)
				}
				now = now.Add(refused.RetryAfter)
				if g, refused = limiter.Admit(now, c); refused != nil {
					t.Fatalf("a request was refused after its RetryAfter: %+v", refused)
				}
			}
			actual := rapid.Int64Range(0, c.Units).Draw(t, "used")
			g.End(now, actual)
			used += actual
			if allowed := float64(rate) * (1 + now.Sub(start).Minutes()); float64(used) > allowed*(1+1e-9) {
				t.Fatalf("%d tokens were used in %v at %d per minute", used, now.Sub(start), rate)
			}
		}
	})
}
