package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Ledger keeps the money of one store. Its methods may be called concurrently.
type Ledger struct {
	store           *storage.Store
	opts            Options
	log             *zap.Logger
	balanceCache    balanceCache
	settler         settler
	idempotencyKeys keymutex.KeyedMutex
	lossReads       keymutex.KeyedMutex // by user: a read of losses may be long

	holds atomic.Int64 // number of the last [journal.CallHold]; zero in a lone store

	open       atomic.Int64 // reservations that have not ended
	reserved   atomic.Int64 // nano-units that they reserve and have not committed
	mismatches atomic.Int64 // debits that the balances allowed and the store could not cover
}

// Options are the options of [Open].
type Options struct {
	// Sources lists what a user may spend, in the user's order. It is called inside
	// transactions, where it may update the user's records, for example open the quota of a new
	// period. Default: only the wallet.
	Sources func(t storage.Txn, user string) (Sources, error)

	// OnReserve is called with the time that a call on a shared store waited for its hold. It may be
	// called concurrently. Default: nothing.
	OnReserve func(waited time.Duration)

	// Logger logs lost settlements and mismatches. Default: none.
	Logger *zap.Logger
}

// Sources are the accounts that a user may spend from.
type Sources struct {
	Order []journal.Account // calls are paid from these, first to last
	Until time.Time         // when they must be read again; zero: only after a change
	Only  string            // the user's preference if it excludes some money; else empty
}

// Open opens the ledger of a store. It closes the records of calls that a crash has left open;
// their recorded charges stay. On a shared store, the open calls belong to other nodes:
// [Ledger.EndEpoch] closes them after their node has ended.
func Open(ctx context.Context, store *storage.Store, opts Options) (*Ledger, error) {
	if opts.Sources == nil {
		opts.Sources = func(_ storage.Txn, user string) (Sources, error) {
			return Sources{Order: []journal.Account{journal.Wallet(user)}}, nil
		}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	l := &Ledger{store: store, opts: opts, log: opts.Logger}
	l.settler.begin(l)
	crashed := func(epoch int64) bool { return epoch == 0 || !store.Shared() }
	if err := l.endCalls(ctx, crashed, func(storage.Reader) error { return nil }); err != nil {
		l.Close(ctx)
		return nil, fmt.Errorf("closing calls that a crash left open: %w", err)
	}
	return l, nil
}

// cached returns the balances of a user in memory, or nil. It returns nil if the store is shared,
// because then each transaction reads the balances.
func (l *Ledger) cached(user string) *balances {
	if l.store.Shared() {
		return nil
	}
	return l.balanceCache.find(user)
}

// Close waits until every settlement is durable or ctx ends, and stops the settler. The store
// must stay open until Close returns.
func (l *Ledger) Close(ctx context.Context) {
	l.settler.end(ctx)
}

// reading is the state of a user's money that a transaction has read or written.
type reading struct {
	load     bool // it has everything that the balances need
	at       time.Time
	accounts []accountState // if an account occurs twice, the last one counts
	sources  *Sources       // nil: unchanged
}

// read returns the state of a user's money inside a transaction: the funding sources, the wallet,
// the receivable, and all other accounts in the balances.
func (l *Ledger) read(t storage.Txn, user string) (*reading, error) {
	sources, err := l.opts.Sources(t, user)
	if err != nil {
		return nil, err
	}
	r := &reading{at: l.store.Now(), sources: &sources}
	accounts := append([]journal.Account{journal.Wallet(user), journal.Receivable(user)}, sources.Order...)
	if p := l.cached(user); p != nil {
		accounts = append(accounts, p.known()...)
	}
	for _, account := range accounts {
		state, err := journal.ReadState(t, account)
		if err != nil {
			return nil, err
		}
		r.accounts = append(r.accounts, accountState{account, state})
	}
	return r, nil
}

// load fills the balances of a user with what the store has.
func (l *Ledger) load(ctx context.Context, user string) error {
	var found *reading
	// Losses are read before any call reserves from these balances. So they count each call
	// exactly once.
	p := l.balanceCache.of(user)
	p.mu.Lock()
	known := p.losses.known
	p.mu.Unlock()
	if !known {
		w, err := l.knownLosses(ctx, user)
		if err != nil {
			return err
		}
		p.mu.Lock()
		if !p.losses.known {
			p.losses = w
		}
		p.mu.Unlock()
	}
	err := l.store.UpdateThen(ctx, func(t storage.Txn) (err error) {
		if found, err = l.read(t, user); err == nil {
			found.load = true
		}
		return err
	}, func(err error) {
		if err == nil {
			l.balanceCache.of(user).install(found, nil)
		}
	})
	return fault.OfStore(err)
}

// unknownTries is how often Update retries a change after a commit with an unknown outcome.
const unknownTries = 8

// Update runs a change of one user's money in a transaction and waits until it is durable. fn may
// run more than once, also after a commit with an unknown outcome: its ids must let it detect an
// earlier run. r, which may be nil, has reserved the amount that fn debits, or reserves it when fn
// calls [Reservation.Confirm]. It has ended when Update returns. Before Update returns, the user's
// balances include the account states that fn has written, and the sources of [Txn.Spend].
func (l *Ledger) Update(ctx context.Context, user string, r *Reservation, fn func(*Txn) error) error {
	defer r.Release()
	for try := 0; ; try++ {
		var made *reading
		err := l.store.UpdateThen(ctx, func(t storage.Txn) error {
			own := &Txn{Txn: t, prefix: journal.AccountsKey(user), again: try > 0, made: reading{at: l.store.Now()}}
			made = &own.made
			err := fn(own)
			switch p := l.cached(user); {
			case err != nil:
			case try > 0: // an earlier run may have written other states
				made, err = l.read(t, user)
			case p != nil:
				err = own.readUnknown(p)
			}
			return err
		}, func(err error) {
			if err != nil {
				return
			}
			if p := l.cached(user); p != nil {
				p.install(made, r)
			}
		})
		if errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrStopped) && try < unknownTries {
			continue
		}
		if err != nil && try > 0 {
			l.balanceCache.forget(user) // an earlier run may have been committed
		}
		return refusalOrFault(err)
	}
}

// Stats are the figures of a ledger at one time.
type Stats struct {
	Open        int64        // reservations that have not ended
	Reserved    money.Amount // amount of these reservations
	Queued      int64        // settlements that are not durable
	AtRisk      money.Amount // charges of these settlements, which a crash would lose
	Mismatches  int64        // debits that the balances allowed and the store could not cover; more than zero is a bug
	CachedUsers int
}

// Stats returns the figures of the ledger.
func (l *Ledger) Stats() Stats {
	queued, atRisk := l.settler.queued()
	return Stats{
		Open: l.open.Load(), Reserved: money.Amount(l.reserved.Load()),
		Queued: queued, AtRisk: atRisk, Mismatches: l.mismatches.Load(), CachedUsers: l.balanceCache.count(),
	}
}

// idle is how long unused balances are kept.
const idle = 10 * time.Minute

// Sweep drops idle balances. It must be called regularly.
func (l *Ledger) Sweep() { l.balanceCache.drop(l.store.Now().Add(-idle)) }

// Funds describes the wallet of a user.
type Funds struct {
	Wallet   journal.State
	Owed     money.Amount // receivable; unless it is zero, spending is paused
	Reserved money.Amount // by running calls
}

// Funds returns the state of a user's wallet. It reads the reserved amount first: a debit that is
// committed meanwhile may briefly be counted twice; it is never missed.
func (l *Ledger) Funds(ctx context.Context, user string) (f Funds, err error) {
	if p := l.cached(user); p != nil {
		p.mu.Lock()
		if wallet := p.sources[journal.Wallet(user)]; wallet != nil {
			f.Reserved = wallet.reserved
		}
		p.mu.Unlock()
	}
	err = l.store.View(ctx, func(r storage.Reader) error {
		if f.Wallet, err = journal.ReadState(r, journal.Wallet(user)); err != nil {
			return err
		}
		f.Reserved += f.Wallet.Reserved
		owed, err := journal.ReadState(r, journal.Receivable(user))
		f.Owed = -owed.Balance
		return err
	})
	return f, fault.OfStore(err)
}

// BudgetUsed returns the durable spending in a budget's present period, and when the period ends.
// The time is zero if the budget never resets.
func (l *Ledger) BudgetUsed(ctx context.Context, user string, b Budget) (used money.Amount, next time.Time, err error) {
	key := b.key(l.store.Now())
	err = l.store.View(ctx, func(r storage.Reader) error {
		state, err := journal.ReadState(r, journal.BudgetAccount(user, key.scope, key.start))
		used = state.Held - state.Balance
		return err
	})
	return used, b.Reset.Next(l.store.Now()), fault.OfStore(err)
}
