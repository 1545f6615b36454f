package limit

import "time"

// account is what one subject has used. The lock of its shard guards it.
type account struct {
	shard    *shard
	rates    Rates // as of the last call
	requests bucket
	tokens   bucket
	streams  int64 // open
	calls    int64 // to be decided, or begun and not ended
}

// fill brings both buckets to the time now.
func (a *account) fill(now int64) {
	if a.rates.RequestsPerSecond > 0 {
		a.requests.fill(now, a.rates.RequestsPerSecond, time.Second)
	}
	if a.rates.TokensPerMinute > 0 {
		a.tokens.fill(now, a.rates.TokensPerMinute, time.Minute)
	}
}

// wait returns how long a call has to wait, and for what most; zero when it may
// begin. The buckets have been filled.
func (a *account) wait(tokens int64, stream bool) (wait time.Duration, what Kind) {
	if rate := a.rates.RequestsPerSecond; rate > 0 {
		wait, what = a.requests.until(1, rate, time.Second), Requests
	}
	if rate := a.rates.TokensPerMinute; rate > 0 {
		// A call larger than a whole minute's tokens begins with a full bucket
		// and leaves a debt; else it could never begin.
		if w := a.tokens.until(min(max(tokens, 1), rate), rate, time.Minute); w > wait {
			wait, what = w, Tokens
		}
	}
	if stream && a.rates.Streams > 0 && a.streams >= a.rates.Streams && wait < streamPatience {
		wait, what = streamPatience, Streams
	}
	return wait, what
}

// streamPatience is what a caller is told to wait for a stream of his to end:
// nobody knows when that will be.
const streamPatience = time.Second

// begin takes what a call is foreseen to use, and returns the tokens that were
// taken for it.
func (a *account) begin(tokens int64, stream bool) (taken int64) {
	if stream {
		a.streams++
	}
	if a.rates.RequestsPerSecond > 0 {
		a.requests.take(1)
	}
	if a.rates.TokensPerMinute > 0 {
		taken = max(tokens, 0)
		a.tokens.take(taken)
	}
	return taken
}

// waitMore returns how long a call that has begun and taken some tokens has to wait to
// use so many in all, as a stream or not. The buckets have been filled.
func (a *account) waitMore(taken, tokens int64, stream bool) (wait time.Duration, what Kind) {
	if rate := a.rates.TokensPerMinute; rate > 0 {
		if more := min(tokens, rate) - taken; more > 0 { // beyond a whole minute's it leaves a debt
			wait, what = a.tokens.until(more, rate, time.Minute), Tokens
		}
	}
	if stream && a.rates.Streams > 0 && a.streams >= a.rates.Streams && wait < streamPatience {
		wait, what = streamPatience, Streams
	}
	return wait, what
}

// extend takes what a call that has begun uses beyond the tokens taken, and returns how
// many tokens that is.
func (a *account) extend(taken, tokens int64, stream bool) (more int64) {
	if stream {
		a.streams++
	}
	if a.rates.TokensPerMinute > 0 {
		more = max(tokens, 0) - taken
		a.tokens.take(more)
	}
	return more
}

// cancel ends a call, which was no stream, as if it had not begun.
func (a *account) cancel(taken int64) {
	a.calls--
	if a.rates.RequestsPerSecond > 0 {
		a.requests.take(-1)
	}
	if a.rates.TokensPerMinute > 0 {
		a.tokens.take(-taken)
	}
}

// end settles a call for which tokens were taken and which used others.
func (a *account) end(now, taken, used int64, stream bool) {
	a.calls--
	if stream {
		a.streams--
	}
	if a.rates.TokensPerMinute > 0 {
		a.fill(now)
		a.tokens.take(max(used, 0) - taken)
	}
}

// idle tells whether a has nothing to remember: a new account would be equal.
func (a *account) idle(now int64) bool {
	if a.calls > 0 {
		return false
	}
	a.fill(now)
	return (a.rates.RequestsPerSecond == 0 || a.requests.level >= a.rates.RequestsPerSecond) &&
		(a.rates.TokensPerMinute == 0 || a.tokens.level >= a.rates.TokensPerMinute)
}

// standing returns how a stands.
func (a *account) standing() (s Standing) {
	if rate := a.rates.RequestsPerSecond; rate > 0 {
		s.Requests = Room{rate, max(a.requests.level, 0), a.requests.until(rate, rate, time.Second)}
	}
	if rate := a.rates.TokensPerMinute; rate > 0 {
		s.Tokens = Room{rate, max(a.tokens.level, 0), a.tokens.until(rate, rate, time.Minute)}
	}
	if rate := a.rates.Streams; rate > 0 {
		s.Streams = Room{Limit: rate, Remaining: max(rate-a.streams, 0)}
	}
	return s
}
