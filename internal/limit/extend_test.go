package limit

import (
	"testing"
	"time"
)

func TestACallIsExtendedToWhatItTurnsOutToBe(t *testing.T) {
	t.Parallel()
	table := NewTable()
	c := Call{
		Key:  Subject{"key_1", Rates{RequestsPerSecond: 3, TokensPerMinute: 60}},
		User: Subject{"usr_1", Rates{Streams: 1}},
	}
	first := admit(t, table, start, c)
	if refused := table.Extend(start, &first, 40, true); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	if s := first.Standing; s.Requests.Remaining != 2 || s.Tokens.Remaining != 20 || s.Streams.Remaining != 0 {
		t.Errorf("stands at %+v", s)
	}

	// A call that is refused then has cost nothing, and has ended.
	c.Tokens = 10
	for what, extend := range map[Kind]struct {
		tokens int64
		stream bool
	}{Tokens: {50, false}, Streams: {20, true}} {
		g := admit(t, table, start, c)
		refused := table.Extend(start, &g, extend.tokens, extend.stream)
		if refused == nil || refused.What != what || refused.OfUser != (what == Streams) {
			t.Fatalf("%s: answered %+v", what, refused)
		}
		if s := refused.Standing; s.Requests.Remaining != 2 || s.Tokens.Remaining != 20 || s.Streams.Remaining != 0 {
			t.Errorf("%s: stands at %+v", what, s)
		}
		g.End(start, 1000)
	}

	// What was taken is settled at the end, as that of a call that was admitted so.
	second := admit(t, table, start, c)
	if refused := table.Extend(start, &second, 20, false); refused != nil || second.Standing.Tokens.Remaining != 0 {
		t.Fatalf("%+v, %+v", refused, second.Standing)
	}
	second.End(start, 5)
	first.End(start, 40)
	g := admit(t, table, start, Call{Key: c.Key, User: c.User, Tokens: 15, Stream: true})
	if s := g.Standing; s.Requests.Remaining != 0 || s.Tokens.Remaining != 0 || s.Streams.Remaining != 0 {
		t.Errorf("stands at %+v", s)
	}
}

func TestACallOfMoreThanAMinutesTokensIsExtendedWithAllOfThem(t *testing.T) {
	t.Parallel()
	table, c := NewTable(), ofKey(Rates{TokensPerMinute: 60})
	g := admit(t, table, start, c)
	if refused := table.Extend(start, &g, 600, false); refused != nil {
		t.Fatalf("refused: %+v", refused)
	}
	refuse(t, table, start, c, Tokens, 541*time.Second)
}

func TestWhatIsSpentIsCountedByTheMinute(t *testing.T) {
	t.Parallel()
	table := NewTable()
	for range 2 {
		if refused := table.Spend(start, "lists/usr_1", 1, 2); refused != nil {
			t.Fatalf("refused: %+v", refused)
		}
	}
	if refused := table.Spend(start, "lists/usr_1", 1, 2); refused == nil || refused.RetryAfter != 30*time.Second || refused.Limit != 2 {
		t.Errorf("answered %+v", refused)
	}
	if refused := table.Spend(start, "lists/usr_2", 1, 2); refused != nil {
		t.Errorf("another is refused: %+v", refused)
	}
}
