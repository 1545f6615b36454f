package ledger

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

// balances is what one user may spend at this moment. One mutex guards all of it,
// so that everything a call needs is reserved together or not at all.
type balances struct {
	user string

	mu      sync.Mutex
	gone    bool                               // it was dropped; look for the one in its place
	loaded  bool                               // sources are those of the store
	read    time.Time                          // when sources were
	until   time.Time                          // when they must be again; zero: only when changed
	sources map[journal.Account]*fundingSource // all that are in order or have reservations
	order   []*fundingSource                   // those that may be spent, in the user's order
	only    string                             // [Sources.Only]
	owed    money.Amount                       // receivable: while there is one, nothing is spent
	caps    map[capKey]*budgetUsage
	open    int // reservations that have not ended
	calls   int // of these, calls under a tolerance that have not been settled for good
	losses  losses
	loads   int // under way
	used    time.Time
}

// fundingSource is an account in balances.
type fundingSource struct {
	account  journal.Account
	durable  money.Amount // available in the store, after the last commit told of
	reserved money.Amount // by debits that have not been committed
}

func (p *fundingSource) available() money.Amount { return max(0, p.durable-p.reserved) }

// capKey names the period of a budget.
type capKey struct {
	scope string // "key/<id>" or "user"
	start int64  // Unix seconds; zero for one that never resets
}

// budgetUsage is a memo account in the balances.
type budgetUsage struct {
	account  journal.Account
	known    bool         // used is that of the store; until then it is being read
	used     money.Amount // in the store, after the last commit told of
	reserved money.Amount
}

// setBack is how far the clock may be before the time at which the sources were read, since
// calls ask for the time a little before they use it. If it is further, the clock was ahead and
// was set back, and the sources must be read again.
const setBack = time.Minute

// fresh reports whether the balances may be used as they stand. The mutex is held.
func (p *balances) fresh(now time.Time) bool {
	return p.loaded && (p.until.IsZero() || now.Before(p.until)) && now.Add(setBack).After(p.read)
}

// available is what the sources in order have together. The mutex is held.
func (p *balances) available() (sum money.Amount) {
	for _, source := range p.order {
		var fits bool
		if sum, fits = sum.Add(source.available()); !fits {
			return money.Max
		}
	}
	return sum
}

// known returns the accounts that the balances know, including those of budgets.
func (p *balances) known() (accounts []journal.Account) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for account := range p.sources {
		accounts = append(accounts, account)
	}
	for _, t := range p.caps {
		accounts = append(accounts, t.account)
	}
	return accounts
}

// install brings the balances up to what a transaction has made of the accounts, and ends the
// reservation that the transaction debited, if any: between the two steps the debit would count
// twice, or not at all. Accounts that the balances know are updated also while the balances are
// not loaded, since reservations refer to them.
func (p *balances) install(r *reading, debited *Reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if debited != nil && debited.balances == p && !debited.ended {
		debited.ended = true
		debited.close()
	}
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
		maps.DeleteFunc(p.sources, func(a journal.Account, have *fundingSource) bool {
			return a != journal.Wallet(p.user) && !slices.Contains(p.order, have)
		})
	}
}

// see notes the state of an account. One that is not known yet is noted only if the sources are
// rearranged.
func (p *balances) see(s seen, anew bool) {
	switch {
	case s.account == journal.Receivable(p.user):
		p.owed = -s.Balance
	case s.account.Memo():
		for _, t := range p.caps {
			if t.account == s.account {
				t.known, t.used = true, s.Held-s.Balance
			}
		}
	default:
		have := p.sources[s.account]
		switch {
		case have != nil:
		case !anew:
			return
		default:
			have = &fundingSource{account: s.account} // which others read without the mutex
			p.sources[s.account] = have
		}
		have.durable = s.Available()
	}
}

// rearrange sets the sources that may be spent. A source that is no longer among them stays
// until the next load, and while reservations may give back to it. The mutex is held.
func (p *balances) rearrange(at time.Time, sources Sources) {
	p.read, p.until, p.only, p.order = at, sources.Until, sources.Only, p.order[:0]
	for _, account := range sources.Order {
		have := p.sources[account]
		if have == nil { // a load has dropped it meanwhile: the next one reads it
			p.loaded = false
			continue
		}
		p.order = append(p.order, have)
	}
}

// usageOf returns the usage of a budget in a period, made if there is none. From then on
// loads read it. The mutex is held.
func (p *balances) usageOf(key capKey) *budgetUsage {
	t := p.caps[key]
	if t == nil {
		t = &budgetUsage{account: journal.BudgetAccount(p.user, key.scope, key.start)}
		p.caps[key] = t
	}
	return t
}

// balanceShards is how many maps the balances are spread over, by user.
const balanceShards = 64

// balanceCache holds the balances of users in memory.
type balanceCache [balanceShards]struct {
	mu   sync.Mutex
	user map[string]*balances
}

func (ps *balanceCache) shard(user string) int {
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(user) {
		h = (h ^ uint32(user[i])) * 16777619
	}
	return int(h % balanceShards)
}

// of returns the balances of a user, made if there are none.
func (ps *balanceCache) of(user string) *balances {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	p := shard.user[user]
	if p == nil {
		if shard.user == nil {
			shard.user = make(map[string]*balances)
		}
		p = &balances{user: user, sources: make(map[journal.Account]*fundingSource), caps: make(map[capKey]*budgetUsage)}
		shard.user[user] = p
	}
	return p
}

// find returns the balances of a user, nil if there are none.
func (ps *balanceCache) find(user string) *balances {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.user[user]
}

// maxCaps bounds the budgets in idle balances. A budget that was dropped is read again when
// a call needs it.
const maxCaps = 256

// drop removes the balances that were not used since a time, and clears the budgets of those
// that have too many.
func (ps *balanceCache) drop(since time.Time) {
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

// forget makes the balances of a user unusable until they are read again.
func (ps *balanceCache) forget(user string) {
	if p := ps.find(user); p != nil {
		p.mu.Lock()
		p.loaded = false
		p.mu.Unlock()
	}
}

func (ps *balanceCache) count() (n int) {
	for i := range ps {
		shard := &ps[i]
		shard.mu.Lock()
		n += len(shard.user)
		shard.mu.Unlock()
	}
	return n
}
