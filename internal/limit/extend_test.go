package limit

import (
	"testing"
	"time"
)

func TestExtendCorrectsTheExpectedUnits(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	c := Request{
		Key:  Subject{ID: "key_1", Rates: Rates{Requests: PerSecond(3), Units: PerMinute(60)}},
		User: Subject{ID: "usr_1", Rates: Rates{Concurrent: 1}},
	}
	first := admit(t, limiter, start, c)
	if refused := limiter.Extend(start, &first, 40, true); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	if s := first.Status; s.Requests.Remaining != 2 || s.Units.Remaining != 20 || s.Concurrent.Remaining != 0 {
		t.Errorf("the status is %+v", s)
	}

	// A request that Extend refuses has used nothing and has ended.
	c.Units = 10
	for what, extend := range map[Kind]struct {
		tokens int64
		stream bool
	}{Units: {50, false}, Concurrent: {20, true}} {
		g := admit(t, limiter, start, c)
		refused := limiter.Extend(start, &g, extend.tokens, extend.stream)
		if refused == nil || refused.What != what || refused.OfUser != (what == Concurrent) {
			t.Fatalf("%v: the refusal is %+v", what, refused)
		}
		if s := refused.Status; s.Requests.Remaining != 2 || s.Units.Remaining != 20 || s.Concurrent.Remaining != 0 {
			t.Errorf("%v: the status is %+v", what, s)
		}
		g.End(start, 1000)
	}

	// End counts the units as for a request that was admitted with them.
	second := admit(t, limiter, start, c)
	if refused := limiter.Extend(start, &second, 20, false); refused != nil || second.Status.Units.Remaining != 0 {
		t.Fatalf("%+v, %+v", refused, second.Status)
	}
	second.End(start, 5)
	first.End(start, 40)
	g := admit(t, limiter, start, Request{Key: c.Key, User: c.User, Units: 15, Concurrent: true})
	if s := g.Status; s.Requests.Remaining != 0 || s.Units.Remaining != 0 || s.Concurrent.Remaining != 0 {
		t.Errorf("the status is %+v", s)
	}
}

func TestExtendAboveTheLimitTakesAllUnits(t *testing.T) {
	t.Parallel()
	limiter, c := NewRateLimiter(), ofKey(Rates{Units: PerMinute(60)})
	g := admit(t, limiter, start, c)
	if refused := limiter.Extend(start, &g, 600, false); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	refuse(t, limiter, start, c, Units, 541*time.Second)
}

func TestTakeCountsPerMinute(t *testing.T) {
	t.Parallel()
	limiter := NewRateLimiter()
	for range 2 {
		if refused := limiter.Take(start, "lists/usr_1", 1, PerMinute(2)); refused != nil {
			t.Fatalf("refused: %+v", refused)
		}
	}
	if refused := limiter.Take(start, "lists/usr_1", 1, PerMinute(2)); refused == nil || refused.RetryAfter != 30*time.Second || refused.Limit != 2 {
		t.Errorf("the refusal is %+v", refused)
	}
	if refused := limiter.Take(start, "lists/usr_2", 1, PerMinute(2)); refused != nil {
		t.Errorf("another subject is refused: %+v", refused)
	}
}
