package ledger

import (
	"bytes"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Txn is a transaction that changes the money of one user. It records the account states that it
// writes, so that the balances can be updated without another read.
type Txn struct {
	storage.Txn
	prefix []byte // of the keys of the user's accounts
	again  bool   // an earlier run may have been committed
	made   reading
}

// accountState is the state of an account that a transaction has read or written.
type accountState struct {
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
		t.made.accounts = append(t.made.accounts, accountState{journal.Account(key[len(journal.AccountPrefix):]), state})
	}
	return t.Txn.Set(key, val, purge)
}

// BookNew is [journal.Book] for a transfer with a new id, or for one that is written together with
// a key that this transaction has found free. Only an earlier run of this transaction can have
// booked it, so BookNew looks for it only after such a run.
func (t *Txn) BookNew(now time.Time, x journal.Transfer) (bool, error) {
	if t.again {
		return journal.Book(t, now, x)
	}
	return true, journal.BookNew(t, now, x)
}

// Spend sets the sources that the user may spend from now on. It must be called if the
// transaction changes them.
func (t *Txn) Spend(s Sources) { t.made.sources = &s }

// readUnknown reads the accounts of the new sources that the transaction has not written and the
// balances do not have.
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
		t.made.accounts = append(t.made.accounts, accountState{account, state})
	}
	return nil
}
