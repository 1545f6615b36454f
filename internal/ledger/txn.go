package ledger

import (
	"bytes"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Txn is a transaction in which the money of one user changes. It notes what
// becomes of the accounts, so that the balances can follow without reading anything
// again.
type Txn struct {
	storage.Txn
	prefix []byte // of the keys of the user's accounts
	again  bool   // an earlier run may have been committed
	made   reading
}

// seen is an account as a transaction leaves it, or has found it.
type seen struct {
	account journal.Account
	journal.State
}

// Set implements [storage.Txn].
func (t *Txn) Set(key, val []byte, purge time.Time) error {
	if bytes.HasPrefix(key, t.prefix) {
		state, err := journal.DecodeState(val)
		if err != nil {
			return err
		}
		t.made.accounts = append(t.made.accounts, seen{journal.Account(key[len(journal.AccountPrefix):]), state})
	}
	return t.Txn.Set(key, val, purge)
}

// BookNew is [Book] for a transfer whose id was drawn for it, or stands for what
// this transaction has found free, such as an idempotency key, and what is written with it:
// it has not happened, unless in an earlier run of this very transaction, and only
// then is it looked for.
func (t *Txn) BookNew(now time.Time, x journal.Transfer) (bool, error) {
	if t.again {
		return journal.Book(t, now, x)
	}
	return true, journal.BookNew(t, now, x)
}

// Spend tells what the user may spend from now on, where the transaction changes
// that.
func (t *Txn) Spend(s Sources) { t.made.sources = &s }

// readUnknown reads what may be spent from now on, was not entered, and is not in
// the balances.
func (t *Txn) readUnknown(p *balances) error {
	if t.made.sources == nil {
		return nil
	}
	have := p.known()
	for _, s := range t.made.accounts {
		have = append(have, s.account)
	}
	for _, account := range t.made.sources.Order {
		if slices.Contains(have, account) {
			continue
		}
		state, err := journal.ReadState(t, account)
		if err != nil {
			return err
		}
		t.made.accounts = append(t.made.accounts, seen{account, state})
	}
	return nil
}
