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

// Ledger is the money of one store.
type Ledger struct {
	store           *storage.Store
	opts            Options
	log             *zap.Logger
	balanceCache    balanceCache
	settler         settler
	idempotencyKeys keymutex.KeyedMutex

	open       atomic.Int64 // reservations that have not ended
	reserved   atomic.Int64 // nano-units that they hold, without what is committed
	mismatches atomic.Int64 // debits that the store could not cover as the balances had promised
}

// Options are what a [Ledger] is told by the rest of the process.
type Options struct {
	// Sources lists what a user may spend, in the user's order. It is called inside
	// transactions, where it may bring the user's records up to date, such as by
	// opening the quota of a new period. Default: the wallet alone.
	Sources func(t storage.Txn, user string) (Sources, error)

	// Logger is told of what must not happen. Default: none.
	Logger *zap.Logger
}

// Sources are the accounts that a user may spend from.
type Sources struct {
	Order []journal.Account // what calls are paid from, first to last
	Until time.Time         // when this must be looked at again; zero: only after a change
	Only  string            // the user's preference by which Order is not all that the user has; empty: it is
}

// Open makes the ledger of a store, and closes the records of calls that a
// crash has left open: they are charged as recorded.
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
	if err := l.closeCrashed(ctx); err != nil {
		l.Close(ctx)
		return nil, fmt.Errorf("closing calls that a crash left open: %w", err)
	}
	return l, nil
}

// Close waits until every settlement is durable, or ctx ends, and ends the
// settler. The store is open until then.
func (l *Ledger) Close(ctx context.Context) {
	l.settler.end(ctx)
}

// reading is what a transaction found or made of a user's money.
type reading struct {
	load     bool // it was made to fill the balances: it has all that the balances need
	at       time.Time
	accounts []seen   // the last of an account counts
	sources  *Sources // nil: as they were
}

// read returns what a user has, inside a transaction: what the user may spend, the
// wallet, the receivable, and what else the balances know.
func (l *Ledger) read(t storage.Txn, user string) (*reading, error) {
	sources, err := l.opts.Sources(t, user)
	if err != nil {
		return nil, err
	}
	r := &reading{at: l.store.Now(), sources: &sources}
	accounts := append([]journal.Account{journal.Wallet(user), journal.Receivable(user)}, sources.Order...)
	if p := l.balanceCache.find(user); p != nil {
		accounts = append(accounts, p.known()...)
	}
	for _, account := range accounts {
		state, err := journal.ReadState(t, account)
		if err != nil {
			return nil, err
		}
		r.accounts = append(r.accounts, seen{account, state})
	}
	return r, nil
}

// load fills the balances of a user with what the store has.
func (l *Ledger) load(ctx context.Context, user string) error {
	var found *reading
	// No call has been settled through balances that were never filled, so what is
	// read here misses none and has none twice.
	p := l.balanceCache.of(user)
	p.mu.Lock()
	known := p.losses.known
	p.mu.Unlock()
	if !known {
		w, err := l.readLosses(ctx, user)
		if ended := ctx.Err(); ended != nil { // the caller disconnected; what was not read would count as no loss
			return ended
		}
		if err != nil { // a record that cannot be read must not keep the user from calling
			l.log.Error("what a user's calls left uncollected cannot be read in full", zap.String("user_id", user), zap.Error(err))
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

// unknownTries is how often a change is run again whose outcome the store does
// not know. Each run looks first whether the one before it was committed.
const unknownTries = 8

// Update runs a change of one user's money in a transaction and waits until it
// is durable. fn may run more than once, also after a commit whose outcome is not
// known: what it does must carry ids by which it finds that it has been
// done. What it debits has been reserved in r, which may be nil and has
// ended when Update returns. The user's balances follow before Update returns: by
// what fn has entered into the user's accounts, and by [Txn.Spend].
func (l *Ledger) Update(ctx context.Context, user string, r *Reservation, fn func(*Txn) error) error {
	defer r.Release()
	for try := 0; ; try++ {
		var made *reading
		err := l.store.UpdateThen(ctx, func(t storage.Txn) error {
			own := &Txn{Txn: t, prefix: journal.AccountsKey(user), again: try > 0, made: reading{at: l.store.Now()}}
			made = &own.made
			err := fn(own)
			switch p := l.balanceCache.find(user); {
			case err != nil:
			case try > 0: // an earlier run may have made more
				made, err = l.read(t, user)
			case p != nil:
				err = own.readUnknown(p)
			}
			return err
		}, func(err error) {
			if err != nil {
				return
			}
			if p := l.balanceCache.find(user); p != nil {
				p.install(made, r)
			}
		})
		if errors.Is(err, storage.ErrUnknown) && !errors.Is(err, storage.ErrStopped) && try < unknownTries {
			continue
		}
		if err != nil && try > 0 {
			l.balanceCache.forget(user) // an earlier run may have happened: look before anything is spent
		}
		return fault.OfStore(err)
	}
}

// Stats are the figures of a ledger at this moment.
type Stats struct {
	Open        int64        // reservations that have not ended
	Reserved    money.Amount // what they hold
	Queued      int64        // settlements that are not durable
	AtRisk      money.Amount // what those have charged: a crash would forget it
	Mismatches  int64        // debits that did not find what the balances had promised; never anything but zero
	CachedUsers int
}

// Stats returns the ledger's figures.
func (l *Ledger) Stats() Stats {
	queued, atRisk := l.settler.queued()
	return Stats{
		Open: l.open.Load(), Reserved: money.Amount(l.reserved.Load()),
		Queued: queued, AtRisk: atRisk, Mismatches: l.mismatches.Load(), CachedUsers: l.balanceCache.count(),
	}
}

// idle is how long unused balances are kept.
const idle = 10 * time.Minute

// Sweep drops balances that have been idle. It is called now and then.
func (l *Ledger) Sweep() { l.balanceCache.drop(l.store.Now().Add(-idle)) }

// Funds is what a user has.
type Funds struct {
	Wallet   journal.State
	Owed     money.Amount // receivable; while there is one, spending is paused
	Reserved money.Amount // in memory, by calls under way
}

// Funds returns what a user has in the wallet. What is reserved is looked at
// first: what has been committed since then counts twice for a moment, and never
// not at all.
func (l *Ledger) Funds(ctx context.Context, user string) (f Funds, err error) {
	if p := l.balanceCache.find(user); p != nil {
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
		owed, err := journal.ReadState(r, journal.Receivable(user))
		f.Owed = -owed.Balance
		return err
	})
	return f, fault.OfStore(err)
}

// BudgetUsed returns what has been spent in a budget's present period, as far
// as it is durable, and when the period ends; the zero Time for one that never
// resets.
func (l *Ledger) BudgetUsed(ctx context.Context, user string, b Budget) (used money.Amount, next time.Time, err error) {
	key := b.key(l.store.Now())
	err = l.store.View(ctx, func(r storage.Reader) error {
		state, err := journal.ReadState(r, journal.BudgetAccount(user, key.scope, key.start))
		used = state.Held - state.Balance
		return err
	})
	return used, b.Reset.Next(l.store.Now()), fault.OfStore(err)
}
