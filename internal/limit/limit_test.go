package limit

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

var start = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// ofKey is a call of a key with these rates, of a user without.
func ofKey(r Rates) Call {
	return Call{Key: Subject{"key_1", r}, User: Subject{ID: "usr_1"}}
}

// admit begins a call that must be admitted.
func admit(t *testing.T, table *Table, now time.Time, c Call) Grant {
	t.Helper()
	g, refused := table.Admit(now, c)
	if refused != nil {
		t.Fatalf("%+v was refused at %v: %+v", c, now.Sub(start), refused)
	}
	return g
}

// refuse begins a call that must be refused, for this and for so long.
func refuse(t *testing.T, table *Table, now time.Time, c Call, what Kind, wait time.Duration) *Refusal {
	t.Helper()
	_, refused := table.Admit(now, c)
	if refused == nil || refused.What != what || refused.RetryAfter != wait {
		t.Fatalf("%+v was answered %+v at %v, want %s for %v", c, refused, now.Sub(start), what, wait)
	}
	return refused
}

func TestAsManyCallsBeginInASecondAsAreAllowed(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{RequestsPerSecond: 3})
	for range 3 {
		admit(t, table, start, c)
	}
	third := time.Second/3 + 1 // rounded up
	refuse(t, table, start, c, Requests, third)
	refuse(t, table, start.Add(third-1), c, Requests, 1)
	admit(t, table, start.Add(third), c)
	refuse(t, table, start.Add(third), c, Requests, 2*time.Second/3+1-third)
	// After a long silence no more than a second's calls have been saved.
	later := start.Add(time.Hour)
	for range 3 {
		admit(t, table, later, c)
	}
	refuse(t, table, later, c, Requests, third)
}

func TestAsManyTokensAreUsedInAMinuteAsAreAllowed(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{TokensPerMinute: 60})
	c.Tokens = 40
	first := admit(t, table, start, c)
	refuse(t, table, start, c, Tokens, 20*time.Second)

	first.End(start, 10) // 50 are left
	second := admit(t, table, start, c)
	second.End(start, 100) // 50 are owed
	refuse(t, table, start, c, Tokens, 90*time.Second)
	admit(t, table, start.Add(90*time.Second), c)
}

func TestACallOfMoreThanAMinutesTokensBeginsWithAllOfThem(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{TokensPerMinute: 60})
	small, large := c, c
	small.Tokens, large.Tokens = 1, 600
	g := admit(t, table, start, small)
	refuse(t, table, start, large, Tokens, time.Second)
	now := start.Add(time.Second)
	admit(t, table, now, large)
	refuse(t, table, now, small, Tokens, 541*time.Second)
	g.End(now, 1)
	refuse(t, table, now, Call{Key: c.Key}, Tokens, 541*time.Second) // what foresees nothing uses something
}

func TestAsManyStreamsAreOpenAsAreAllowed(t *testing.T) {
	t.Parallel()
	table, plain := NewTable(), ofKey(Rates{Streams: 2})
	stream := plain
	stream.Stream = true
	first, _ := admit(t, table, start, stream), admit(t, table, start, stream)
	refuse(t, table, start, stream, Streams, time.Second)
	admit(t, table, start, plain)

	first.End(start, 0)
	first.End(start, 0) // acts once
	admit(t, table, start, stream)
	refuse(t, table, start.Add(24*time.Hour), stream, Streams, time.Second)
}

func TestARefusedCallCostsNeitherItsKeyNorItsUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		key, user Rates
		what      Kind
		ofUser    bool
	}{
		"the key's requests":  {Rates{RequestsPerSecond: 1}, Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Requests, false},
		"the user's requests": {Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Rates{RequestsPerSecond: 1}, Requests, true},
		"the key's tokens":    {Rates{TokensPerMinute: 1}, Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Tokens, false},
		"the user's tokens":   {Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Rates{TokensPerMinute: 1}, Tokens, true},
		"the key's streams":   {Rates{Streams: 1}, Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Streams, false},
		"the user's streams":  {Rates{RequestsPerSecond: 2, TokensPerMinute: 2, Streams: 2}, Rates{Streams: 1}, Streams, true},
	} {
		table := NewTable()
		both := Call{Key: Subject{"key_1", c.key}, User: Subject{"usr_1", c.user}, Tokens: 1, Stream: true}
		admit(t, table, start, both)
		for range 5 {
			_, refused := table.Admit(start, both)
			if refused == nil || refused.What != c.what || refused.OfUser != c.ofUser {
				t.Fatalf("%s: answered %+v", name, refused)
			}
		}
		// The one that was not at its limit has exactly one more.
		other := both
		if c.ofUser {
			other.User = Subject{ID: "usr_2"}
		} else {
			other.Key = Subject{ID: "key_2"}
		}
		admit(t, table, start, other)
		if _, refused := table.Admit(start, other); refused == nil {
			t.Errorf("%s: a third call was admitted", name)
		}
	}
}

func TestTheLongestWaitIsTold(t *testing.T) {
	t.Parallel()
	table := NewTable()
	c := Call{
		Key: Subject{"key_1", Rates{RequestsPerSecond: 1, TokensPerMinute: 1}}, User: Subject{"usr_1", Rates{TokensPerMinute: 2, Streams: 1}},
		Tokens: 1, Stream: true,
	}
	admit(t, table, start, c)
	r := refuse(t, table, start, c, Tokens, time.Minute)
	if r.OfUser || r.Limit != 1 || r.Standing.Tokens != (Room{1, 0, time.Minute}) {
		t.Errorf("was refused with %+v", r)
	}
	refuse(t, table, start.Add(time.Minute), c, Streams, time.Second)
}

func TestWithoutLimitsNothingIsRemembered(t *testing.T) {
	t.Parallel()
	table := NewTable()
	c := Call{Key: Subject{ID: "key_1"}, User: Subject{ID: "usr_1"}, Tokens: math.MaxInt64, Stream: true}
	for range 1000 {
		g := admit(t, table, start, c)
		if g.Standing != (Standing{}) {
			t.Fatalf("no limits stand at %+v", g.Standing)
		}
		g.End(start, math.MaxInt64)
	}
	if n := table.Len(); n != 0 {
		t.Errorf("%d subjects are remembered", n)
	}
	c.Key.Rates.RequestsPerSecond = 1
	admit(t, table, start, c)
	if n := table.Len(); n != 1 {
		t.Errorf("of a limited key and an unlimited user %d are remembered", n)
	}
}

func TestChangedLimitsActOnTheNextCall(t *testing.T) {
	t.Parallel()
	table := NewTable()
	rates := func(n int64) Call { return ofKey(Rates{RequestsPerSecond: n}) }
	admit(t, table, start, rates(100))
	admit(t, table, start, rates(1)) // 99 are left, of which one is allowed to be
	refuse(t, table, start, rates(1), Requests, time.Second)
	refuse(t, table, start, rates(1000), Requests, time.Millisecond)
	admit(t, table, start, rates(0))

	stream := ofKey(Rates{Streams: 2})
	stream.Stream = true
	admit(t, table, start, stream)
	admit(t, table, start, stream)
	stream.Key.Rates.Streams = 1
	refuse(t, table, start, stream, Streams, time.Second)
	stream.Key.Rates.Streams = 3
	admit(t, table, start, stream)

	// A limit that begins while a call is open counts what that uses.
	unlimited := Call{Key: Subject{"key_2", Rates{Streams: 1}}, Tokens: 50}
	g := admit(t, table, start, unlimited)
	limited := Call{Key: Subject{"key_2", Rates{TokensPerMinute: 60}}, Tokens: 10}
	admit(t, table, start, limited)
	g.End(start, 50)
	refuse(t, table, start, limited, Tokens, 10*time.Second)
}

func TestAClockThatIsSetBackLocksNobodyOut(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{RequestsPerSecond: 1})
	admit(t, table, start, c)
	back := start.Add(-time.Hour)
	refuse(t, table, back, c, Requests, time.Second)
	admit(t, table, back.Add(time.Second), c)
}

func TestCallsThatOvertakeEachOtherGainNothing(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{RequestsPerSecond: 10})
	for range 10 {
		admit(t, table, start, c)
	}
	early, late := start, start.Add(90*time.Millisecond)
	for range 20 {
		refuse(t, table, late, c, Requests, 10*time.Millisecond)
		refuse(t, table, early, c, Requests, 10*time.Millisecond)
	}
	admit(t, table, late.Add(10*time.Millisecond), c)
}

func TestTheStandingIsThatOfWhoHasLessLeft(t *testing.T) {
	t.Parallel()
	table := NewTable()
	c := Call{
		Key:    Subject{"key_1", Rates{RequestsPerSecond: 10, TokensPerMinute: 600}},
		User:   Subject{"usr_1", Rates{RequestsPerSecond: 5, TokensPerMinute: 6000, Streams: 3}},
		Tokens: 60, Stream: true,
	}
	got := admit(t, table, start, c).Standing
	want := Standing{
		Requests: Room{5, 4, 200 * time.Millisecond},
		Tokens:   Room{600, 540, 6 * time.Second},
		Streams:  Room{3, 2, 0},
	}
	if got != want {
		t.Errorf("stands at %+v, want %+v", got, want)
	}
	c.Tokens = 6000
	if g := admit(t, table, start.Add(time.Hour), c); g.Standing.Tokens.Remaining != 0 || g.Standing.Tokens.Reset != 10*time.Minute {
		t.Errorf("a debt stands at %+v", g.Standing.Tokens)
	}
}

func TestARefusalIsARateLimitedFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal Refusal
		want    string
	}{
		{Refusal{What: Requests, Limit: 5}, "the limit of 5 requests per second of your key is reached"},
		{Refusal{What: Tokens, Limit: 6, OfUser: true}, "the limit of 6 tokens per minute of your account is reached"},
		{Refusal{What: Streams, Limit: 7}, "the limit of 7 streams at once of your key is reached"},
		{Refusal{What: Requests, Limit: 1}, "the limit of 1 request per second of your key is reached"},
		{Refusal{What: Tokens, Limit: 1, OfUser: true}, "the limit of 1 token per minute of your account is reached"},
		{Refusal{What: Streams, Limit: 1}, "the limit of 1 stream at once of your key is reached"},
	} {
		c.refusal.RetryAfter = 3 * time.Second
		got := c.refusal.Fault()
		if got.Code != fault.RateLimited || got.Message != c.want || got.RetryAfter != 3*time.Second || got.Status() != 429 {
			t.Errorf("%+v is %+v", c.refusal, got)
		}
	}
}

func TestAbsurdNumbersOverflowNothing(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{1, 1000, math.MaxInt64} {
		table, c := NewTable(), ofKey(Rates{RequestsPerSecond: rate, TokensPerMinute: rate, Streams: rate})
		c.Tokens = math.MaxInt64
		g := admit(t, table, start, c)
		g.End(start, math.MaxInt64)
		g = Grant{}
		if _, refused := table.Admit(start, c); refused == nil || refused.What != Tokens || refused.RetryAfter <= 0 {
			t.Errorf("rate %d: after all tokens were used, answered %+v", rate, refused)
		}
		c.Tokens = math.MinInt64
		if _, refused := table.Admit(time.Unix(0, math.MaxInt64), c); refused != nil && rate > 1000 {
			t.Errorf("rate %d: after centuries refused with %+v", rate, refused)
		}
	}
}

// TestNoWindowHoldsMoreThanItsShare holds that over any time no more is admitted
// than was saved before it and has come in it; and that the wait which a refusal
// tells is exact.
func TestNoWindowHoldsMoreThanItsShare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable()
		c := ofKey(Rates{TokensPerMinute: rapid.Int64Range(1, 1_000_000).Draw(t, "rate")})
		rate := c.Key.Rates.TokensPerMinute
		now, used := start, int64(0)
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(10*time.Second)).Draw(t, "pause")))
			c.Tokens = rapid.Int64Range(1, rate).Draw(t, "tokens")
			g, refused := table.Admit(now, c)
			if refused != nil {
				if _, early := table.Admit(now.Add(refused.RetryAfter-1), c); early == nil {
					t.Fatalf("a call was admitted before the %v it was told", refused.RetryAfter)
				}
				now = now.Add(refused.RetryAfter)
				if g, refused = table.Admit(now, c); refused != nil {
					t.Fatalf("a call was refused after the time it was told: %+v", refused)
				}
			}
			actual := rapid.Int64Range(0, c.Tokens).Draw(t, "used")
			g.End(now, actual)
			used += actual
			if allowed := float64(rate) * (1 + now.Sub(start).Minutes()); float64(used) > allowed*(1+1e-9) {
				t.Fatalf("%d tokens were used in %v at %d a minute", used, now.Sub(start), rate)
			}
		}
	})
}

func TestTheNameOfAKindIsThatOfItsLimit(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]string{Requests: "requests_per_second", Tokens: "tokens_per_minute", Streams: "streams"} {
		if kind.String() != want {
			t.Errorf("the limit %s is named %s", want, kind)
		}
	}
}
