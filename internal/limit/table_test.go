package limit

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestTheTableStaysSmallWhileSubjectsComeAndGo(t *testing.T) {
	t.Parallel()
	table := NewTable()
	now := start
	for i := range 200_000 {
		now = now.Add(time.Millisecond)
		c := ofKey(Rates{RequestsPerSecond: 10, TokensPerMinute: 60_000, Streams: 1})
		c.Key.ID = "key_" + strconv.Itoa(i)
		c.Tokens, c.Stream = 1000, true
		g := admit(t, table, now, c)
		g.End(now, 1000) // idle again after a second, when some 1000 others have come
	}
	if n := table.Len(); n > 4000 {
		t.Errorf("%d subjects are remembered, of which 1000 have used something", n)
	}
}

func TestWhoIsRefusedIsForgottenToo(t *testing.T) {
	t.Parallel()
	table := NewTable()
	user := Subject{"usr_1", Rates{Streams: 1}}
	admit(t, table, start, Call{User: user, Stream: true})
	for i := range 20_000 {
		newcomer := Subject{"key_" + strconv.Itoa(i), Rates{RequestsPerSecond: 1}}
		refuse(t, table, start, Call{Key: newcomer, User: user, Stream: true}, Streams, time.Second)
	}
	if n := table.Len(); n > 1000 {
		t.Errorf("%d subjects are remembered, of which one is busy", n)
	}
}

func TestWhoIsBusyIsNotForgotten(t *testing.T) {
	t.Parallel()
	table := NewTable()
	open := ofKey(Rates{Streams: 1})
	open.Stream = true
	g := admit(t, table, start, open)
	owing := ofKey(Rates{TokensPerMinute: 1})
	owing.Key.ID, owing.Tokens = "key_owing", 1000 // of which a minute gives one
	admitted := admit(t, table, start, owing)
	admitted.End(start, 1000)

	now := start.Add(time.Minute)
	for i := range 50_000 {
		other := ofKey(Rates{RequestsPerSecond: 1000})
		other.Key.ID = fmt.Sprint("other ", i)
		now = now.Add(time.Microsecond)
		passing := admit(t, table, now, other)
		passing.End(now, 0)
	}
	refuse(t, table, now, open, Streams, time.Second)
	refuse(t, table, now, owing, Tokens, start.Add(1000*time.Minute).Sub(now))
	g.End(now, 0)
	admit(t, table, now, open)
}

// TestANewcomerIsNotSweptByItsOwnUser holds the two accounts of one call in one
// shard: the second to be made sweeps, and must leave the first.
func TestANewcomerIsNotSweptByItsOwnUser(t *testing.T) {
	t.Parallel()
	for i := range 2000 {
		table := NewTable()
		r := Rates{RequestsPerSecond: 1}
		c := Call{Key: Subject{"key_" + strconv.Itoa(i), r}, User: Subject{"usr_" + strconv.Itoa(i), r}}
		admit(t, table, start, c)
		if n := table.Len(); n != 2 {
			t.Fatalf("%d of a key and its user are remembered", n)
		}
		refuse(t, table, start, c, Requests, time.Second)
	}
}

func TestManyAtOnceGetNoMoreThanOneByOne(t *testing.T) {
	t.Parallel()
	table := NewTable()
	const limit, keys = 100, 4
	user := Subject{"usr_1", Rates{RequestsPerSecond: limit, TokensPerMinute: 10 * limit, Streams: limit}}
	var admitted atomic.Int64
	grants := make(chan Grant, limit+1)
	var callers sync.WaitGroup
	for caller := range 8 {
		callers.Go(func() {
			for i := range limit {
				// Key and user stand on either side of each other's lock.
				c := Call{Key: Subject{"key_" + strconv.Itoa((caller+i)%keys), Rates{RequestsPerSecond: limit}}, User: user, Tokens: 10, Stream: true}
				if caller%2 == 0 {
					c.Key, c.User = c.User, c.Key
				}
				if g, refused := table.Admit(start, c); refused == nil {
					if admitted.Add(1) <= limit {
						grants <- g
					}
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n != limit {
		t.Fatalf("%d calls were admitted, want %d", n, limit)
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
	got := admit(t, table, start.Add(time.Second), Call{User: user, Stream: true}).Standing
	if got.Streams.Remaining != limit-1 || got.Tokens.Remaining != 10*limit || got.Requests.Remaining != limit-1 {
		t.Errorf("after all have ended, stands at %+v", got)
	}
}

func full(id string) Subject {
	return Subject{id, Rates{RequestsPerSecond: 1_000_000, TokensPerMinute: 1_000_000_000, Streams: 1000}}
}

func TestAdmittingASubjectThatExistsAllocatesNothing(t *testing.T) {
	table := NewTable()
	c := Call{Key: full("key_1"), User: full("usr_1"), Tokens: 10, Stream: true}
	now := start
	if n := testing.AllocsPerRun(100, func() {
		now = now.Add(time.Millisecond)
		g, refused := table.Admit(now, c)
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
		call Call
	}{
		{"no limits", Call{Key: Subject{ID: "key_1"}, User: Subject{ID: "usr_1"}}},
		{"a key's requests", Call{Key: Subject{"key_1", Rates{RequestsPerSecond: 1_000_000}}, User: Subject{ID: "usr_1"}}},
		{"all of both", Call{Key: full("key_1"), User: full("usr_1"), Tokens: 10, Stream: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			table, now := NewTable(), start
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				g, refused := table.Admit(now, c.call)
				if refused != nil {
					b.Fatal(refused)
				}
				g.End(now, 5)
			}
		})
	}
}
