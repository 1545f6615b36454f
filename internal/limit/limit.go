// Package limit holds callers to their rates: requests per second, tokens per
// minute, streams at once. It counts in the memory of one node and forgets when
// that ends; money is not its concern.
package limit

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Rates are the limits of one subject. Zero, or less, is no limit.
type Rates struct {
	RequestsPerSecond int64 // calls that begin; as many may begin at once
	TokensPerMinute   int64 // tokens of all kinds; as many may be used at once
	Streams           int64 // streaming calls that are open at once
}

func (r Rates) none() bool {
	return r.RequestsPerSecond <= 0 && r.TokensPerMinute <= 0 && r.Streams <= 0
}

// bounded returns r with numbers that can be counted with.
func (r Rates) bounded() Rates {
	bound := func(rate int64) int64 { return min(max(rate, 0), most) }
	return Rates{bound(r.RequestsPerSecond), bound(r.TokensPerMinute), bound(r.Streams)}
}

// of returns the limit of a kind.
func (r Rates) of(what Kind) int64 {
	switch what {
	case Requests:
		return r.RequestsPerSecond
	case Tokens:
		return r.TokensPerMinute
	default:
		return r.Streams
	}
}

// Subject is who is limited.
type Subject struct {
	ID    string // unique over keys and users
	Rates Rates  // as they are now; a change acts on the next call
}

// Call is what wants to begin. Both of its subjects must have room for it.
type Call struct {
	Key, User Subject
	Tokens    int64 // that it will use, as far as can be foreseen
	Stream    bool
}

// Kind is what there is too much of.
type Kind uint8

// The kinds.
const (
	Requests Kind = iota
	Tokens
	Streams
)

// kinds has a row for each kind: the name of its limit, and what is said of it,
// where that is one and where it is more.
var kinds = [...]struct{ name, one, more string }{
	Requests: {"requests_per_second", "request per second", "requests per second"},
	Tokens:   {"tokens_per_minute", "token per minute", "tokens per minute"},
	Streams:  {"streams", "stream at once", "streams at once"},
}

// String returns the name of the kind's limit, as configurations have it.
func (k Kind) String() string { return kinds[k].name }

// Room is what is left of one limit.
type Room struct {
	Limit     int64         // zero: there is none
	Remaining int64         // what may be had at once
	Reset     time.Duration // until all of it may be had again; zero for streams: nobody knows
}

// Standing is what is left of each limit: for each, of the subject that has less
// of it left.
type Standing struct {
	Requests, Tokens, Streams Room
}

// tighter returns, of each limit, what is less.
func (s Standing) tighter(other Standing) Standing {
	less := func(a, b Room) Room {
		if a.Limit == 0 || b.Limit > 0 && b.Remaining < a.Remaining {
			return b
		}
		return a
	}
	return Standing{less(s.Requests, other.Requests), less(s.Tokens, other.Tokens), less(s.Streams, other.Streams)}
}

// Refusal is why a call may not begin. It has cost the caller nothing.
type Refusal struct {
	What       Kind
	OfUser     bool          // it is the user's limit, not the key's
	Limit      int64         // how many are allowed
	RetryAfter time.Duration // after which the call may begin, if none does before
	Standing   Standing
}

// Fault returns the refusal in the words of a caller: RATE_LIMITED.
func (r *Refusal) Fault() *fault.Fault {
	whose := "key"
	if r.OfUser {
		whose = "account"
	}
	words := kinds[r.What].more
	if r.Limit == 1 {
		words = kinds[r.What].one
	}
	return fault.New(fault.RateLimited, "the limit of %d %s of your %s is reached", r.Limit, words, whose).After(r.RetryAfter)
}

// Grant is a call's leave to run. Whoever has it ends it. The zero Grant is that
// of a call without limits.
type Grant struct {
	// Standing is what was left when the call had begun.
	Standing Standing

	accounts [2]*account
	shards   [2]int   // of the accounts
	taken    [2]int64 // tokens
	tokens   int64    // that were foreseen
	stream   bool
}

// End tells what the call has used: what was foreseen beyond that is given back,
// and what was not foreseen is owed. It acts once.
func (g *Grant) End(now time.Time, tokens int64) {
	for i, a := range g.accounts {
		if a == nil {
			continue
		}
		g.accounts[i] = nil
		a.shard.Lock()
		a.end(now.UnixNano(), g.taken[i], tokens, g.stream)
		a.shard.Unlock()
	}
}
