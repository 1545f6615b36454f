package ledger

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

// balances is what one user may spend now. One mutex guards all of it, so that everything a call
// needs is reserved together or not at all.
type balances struct {
	user string

	mu      sync.Mutex
	dropped bool                               // the cache no longer has these balances
	loaded  bool                               // sources agree with the store
	read    time.Time                          // when sources were read
	until   time.Time                          // when sources must be read again; zero: only after a change
	sources map[journal.Account]*fundingSource // in order, or with reservations
	order   []*fundingSource                   // what may be spent, in the user's order
	only    string                             // [Sources.Only]
	owed    money.Amount                       // receivable: nothing is spent unless it is zero
	caps    map[capKey]*budgetUsage
	open    int // reservations that have not ended
	calls   int // of these, calls under a tolerance without a final settlement
	losses  losses
	loads   int // number of loads that run now
	used    time.Time
	funded  time.Time // of a shared store: when the user could last reserve
}

func newBalances(user string) *balances {
	return &balances{user: user, sources: make(map[journal.Account]*fundingSource), caps: make(map[capKey]*budgetUsage)}
}

// fundingSource is an account in balances.
type fundingSource struct {
	account  journal.Account
	durable  money.Amount // available in the store after the last installed commit
	reserved money.Amount // by debits that have not been committed
}

func (p *fundingSource) available() money.Amount { return max(0, p.durable-p.reserved) }

// capKey names the period of a budget.
type capKey struct {
	scope string // "key/<id>" or "user"
	start int64  // Unix seconds; zero for a budget that never resets
}

// budgetUsage is a memo account in the balances.
type budgetUsage struct {
	account  journal.Account
	known    bool         // used has been read from the store
	used     money.Amount // in the store after the last installed commit
	reserved money.Amount
}

// clockTolerance is how far now may lie before the time at which the sources were read. Calls
// read the clock a little before they use it. If now lies further back, the clock was set back,
// and the sources must be read again.
const clockTolerance = time.Minute

// fresh reports whether the balances may be used without another load. The mutex is held.
func (p *balances) fresh(now time.Time) bool {
	return p.loaded && (p.until.IsZero() || now.Before(p.until)) && now.Add(clockTolerance).After(p.read)
}

// available returns the sum of the sources in order. The mutex is held.
func (p *balances) available() (sum money.Amount) {
	for _, source := range p.order {
		var fits bool
		if sum, fits = sum.Add(source.available()); !fits {
			return money.Max
		}
	}
	return sum
}

// known returns the accounts in the balances, including those of budgets.
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

// install updates the balances after a transaction and ends the reservation that the transaction
// debited, if any. Both happen under one lock; otherwise the debit could count twice or not at
// all. Known accounts are updated also while the balances are not loaded, since reservations
// refer to them.
func (p *balances) install(r *reading, debited *Reservation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if debited != nil && debited.balances == p && !debited.ended {
		debited.ended = true
		debited.close()
	}
	if p.dropped {
		return
	}
	for _, s := range r.accounts {
		p.update(s, r.sources != nil)
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

// update sets the state of an account. It adds an unknown account only if add is true.
func (p *balances) update(s accountState, add bool) {
	switch {
	case s.account == journal.Receivable(p.user):
		p.owed = -s.Balance
	case s.account.Memo():
		for _, t := range p.caps {
			if t.account == s.account {
				t.known, t.used = true, s.Used()
			}
		}
	default:
		have := p.sources[s.account]
		switch {
		case have != nil:
		case !add:
			return
		default:
			have = &fundingSource{account: s.account} // the account is read without the mutex
			p.sources[s.account] = have
		}
		have.durable = s.Available()
	}
}

// rearrange sets the sources that may be spent. Any other source stays until the next load, and
// while reservations may release money to it. The mutex is held.
func (p *balances) rearrange(at time.Time, sources Sources) {
	p.read, p.until, p.only, p.order = at, sources.Until, sources.Only, p.order[:0]
	for _, account := range sources.Order {
		have := p.sources[account]
		if have == nil { // a load has dropped the source; the next load reads it
			p.loaded = false
			continue
		}
		p.order = append(p.order, have)
	}
}

// usageOf returns the usage of a budget in a period, and creates it if there is none. Later loads
// read it. The mutex is held.
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

// of returns the balances of a user, and creates them if there are none.
func (ps *balanceCache) of(user string) *balances {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	p := shard.user[user]
	if p == nil {
		if shard.user == nil {
			shard.user = make(map[string]*balances)
		}
		p = newBalances(user)
		shard.user[user] = p
	}
	return p
}

// find returns the balances of a user, or nil if there are none.
func (ps *balanceCache) find(user string) *balances {
	shard := &ps[ps.shard(user)]
	shard.mu.Lock()
	defer shard.mu.Unlock()
	return shard.user[user]
}

// maxCaps bounds the number of budgets in idle balances. A budget that was dropped is read again
// when a call needs it.
const maxCaps = 256

// drop removes the balances that were not used since a time. It clears the budgets of balances
// that have too many.
func (ps *balanceCache) drop(since time.Time) {
	for i := range ps {
		shard := &ps[i]
		shard.mu.Lock()
		for user, p := range shard.user {
			p.mu.Lock()
			switch {
			case p.open == 0 && p.loads == 0 && p.used.Before(since):
				p.dropped = true
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
