package ledger

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/money"
)

// purse is what one user may spend at this moment. One mutex guards all of it,
// so that everything a call needs is reserved together or not at all.
type purse struct {
	user string

	mu     sync.Mutex
	gone   bool             // it was dropped; look for the one in its place
	loaded bool             // pots are those of the store
	read   time.Time        // when pots were
	until  time.Time        // when they must be again; zero: only when changed
	pots   map[Account]*pot // all that are in order or have reservations
	order  []*pot           // those that may be spent, in the user's order
	only   string           // [Sources.Only]
	owed   money.Amount     // receivable: while there is one, nothing is spent
	caps   map[capKey]*tally
	open   int // reservations that have not ended
	calls  int // of these, calls under a tolerance that have not been settled for good
	losses losses
	loads  int // under way
	used   time.Time
}

// pot is an account in a purse.
type pot struct {
	account  Account
	durable  money.Amount // available in the store, after the last commit told of
	reserved money.Amount // by debits that have not been committed
}

func (p *pot) available() money.Amount { return max(0, p.durable-p.reserved) }

// capKey names the period of a budget.
type capKey struct {
	scope string // "key/<id>" or "user"
	start int64  // Unix seconds; zero for one that never resets
}

// tally is a memo account in a purse.
type tally struct {
	account  Account
	known    bool         // used is that of the store; until then it is being read
	used     money.Amount // in the store, after the last commit told of
	reserved money.Amount
}

// setBack is by how much the clock may lie before the time of reading: calls ask
// for the time a little before they use it. More is a clock that was ahead and
// was set back, and what was read then may not hold any more.
const setBack = time.Minute

// fresh tells whether the purse may be used as it stands. The mutex is held.
func (p *purse) fresh(now time.Time) bool {
	return p.loaded && (p.until.IsZero() || now.Before(p.until)) && now.Add(setBack).After(p.read)
}

// available is what the pots in order have together. The mutex is held.
func (p *purse) available() (sum money.Amount) {
	for _, pot := range p.order {
		var fits bool
		if sum, fits = sum.Add(pot.available()); !fits {
			return money.Max
		}
	}
	return sum
}

// known are the accounts that the purse knows, those of budgets among them.
func (p *purse) known() (accounts []Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for account := range p.pots {
		accounts = append(accounts, account)
	}
	for _, t := range p.caps {
		accounts = append(accounts, t.account)
	}
	return accounts
}

// install has the purse follow a transaction.
func (p *purse) install(r *reading) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.follow(r)
}

// installAnd does so and ends the reservation whose debit the transaction was, in
// one step: between the two the debit would count twice, or not at all.
func (p *purse) installAnd(r *reading, debited *Reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if debited != nil && debited.purse == p && !debited.ended {
		debited.ended = true
		debited.close()
	}
	p.follow(r)
}

// follow brings the purse up to what a transaction has made of the accounts: those
// that it knows also while it is not loaded, since reservations have them. The
// mutex is held.
func (p *purse) follow(r *reading) {
	if p.gone {
		return
	}
	for _, s := range r.accounts {
		p.see(s, r.sources != nil)
	}
	if p.loaded = p.loaded || r.load; p.loaded && r.sources != nil {
		p.rearrange(r.at, *r.sources)
	}
	if r.load && p.open == 0 {
		maps.DeleteFunc(p.pots, func(a Account, have *pot) bool { return a != Wallet(p.user) && !slices.Contains(p.order, have) })
	}
}

// see notes how an account stands. One that is not known is of use only where the
// pots are arranged anew.
func (p *purse) see(s seen, anew bool) {
	switch {
	case s.account == Receivable(p.user):
		p.owed = -s.Balance
	case s.account.memo():
		for _, t := range p.caps {
			if t.account == s.account {
				t.known, t.used = true, s.Held-s.Balance
			}
		}
	default:
		have := p.pots[s.account]
		switch {
		case have != nil:
		case !anew:
			return
		default:
			have = &pot{account: s.account} // which others read without the mutex
			p.pots[s.account] = have
		}
		have.durable = s.Available()
	}
}

// rearrange makes sources what may be spent. Pots that are not among them any
// more stay until the next load, and while reservations may give back to them. The
// mutex is held.
func (p *purse) rearrange(at time.Time, sources Sources) {
	p.read, p.until, p.only, p.order = at, sources.Until, sources.Only, p.order[:0]
	for _, account := range sources.Order {
		have := p.pots[account]
		if have == nil { // a load has dropped it meanwhile: the next one reads it
			p.loaded = false
			continue
		}
		p.order = append(p.order, have)
	}
}

// tally returns that of a budget's period, made if there is none. From then on
// loads read it. The mutex is held.
func (p *purse) tally(key capKey) *tally {
	t := p.caps[key]
	if t == nil {
		t = &tally{account: budgetAccount(p.user, key.scope, key.start)}
		p.caps[key] = t
	}
	return t
}

// purseShards is how many maps the purses are spread over, by user.
const purseShards = 64

// purses are those of the node.
type purses [purseShards]struct {
	mu   sync.Mutex
	user map[string]*purse
}

func (ps *purses) shard(user string) int {
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(user) {
		h = (h ^ uint32(user[i])) * 16777619
	}
	return int(h % purseShards)
}

// of returns the purse of a user, made if there is none.
func (ps *purses) of(user string) *purse {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	p := shard.user[user]
	if p == nil {
		if shard.user == nil {
			shard.user = make(map[string]*purse)
		}
		p = &purse{user: user, pots: make(map[Account]*pot), caps: make(map[capKey]*tally)}
		shard.user[user] = p
	}
	return p
}

// find returns the purse of a user, nil when there is none.
func (ps *purses) find(user string) *purse {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.user[user]
}

// maxCaps bounds the budgets that an idle purse remembers; what is forgotten is
// read again when it is asked for.
const maxCaps = 256

// drop forgets the purses that nobody has used since a time, and what others
// remember of too many budgets.
func (ps *purses) drop(since time.Time) {
	for i := range ps {
		shard := &ps[i]
		shard.mu.Lock()
		for user, p := range shard.user {
			p.mu.Lock()
			switch {
			case p.open == 0 && p.loads == 0 && p.used.Before(since):
				p.gone = true
				delete(shard.user, user)
			case p.open == 0 && p.loads == 0 && len(p.caps) > maxCaps:
				clear(p.caps)
			}
			p.mu.Unlock()
		}
		shard.mu.Unlock()
	}
}

// forget has the purse of a user read again before it is used.
func (ps *purses) forget(user string) {
	if p := ps.find(user); p != nil {
		p.mu.Lock()
		p.loaded = false
		p.mu.Unlock()
	}
}

func (ps *purses) count() (n int) {
	for i := range ps {
		shard := &ps[i]
		shard.mu.Lock()
		n += len(shard.user)
		shard.mu.Unlock()
	}
	return n
}
