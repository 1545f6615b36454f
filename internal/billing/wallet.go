package billing

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// WalletChange is a change of a wallet by an operator.
type WalletChange struct {
	User       string       `json:"user"`
	Order      string       `json:"order"` // the id of the transfer
	Amount     money.Amount `json:"amount"`
	Balance    money.Amount `json:"balance"`               // afterwards
	Owed       money.Amount `json:"owed,omitempty"`        // afterwards
	WrittenOff money.Amount `json:"written_off,omitempty"` // the part of the owed amount that the wallet did not cover
	Replayed   bool         `json:"replayed"`              // an earlier request with this idempotency key did it
}

// change is a change of a wallet that is not booked yet.
type change struct {
	operation string // part of the fingerprint and of the transfer's id
	kind      journal.Kind
	amount    money.Amount // of the balance
	actor     string
	user      string // id or name of the user
	reason    string
	key       string // idempotency key; may be empty

	reserve func(user string) (*ledger.Reservation, error)                                    // nil: nothing is reserved
	legs    func(t storage.Txn, user string, x *WalletChange) (legs []journal.Leg, err error) // also fills x
}

// Credit credits the wallet of the user with this id or name, for an operator. The amount must be
// more than zero. A reason is required; the key is optional. The same key with the same amount returns
// the first change, also if the reason differs: two operators who answer one case write different reasons.
func (b *Service) Credit(ctx context.Context, actor, idOrName string, amount money.Amount, reason, key string) (WalletChange, error) {
	if err := positive(amount); err != nil {
		return WalletChange{}, err
	}
	return b.change(ctx, change{
		operation: "credit", kind: journal.Credit, amount: amount, actor: actor, user: idOrName, reason: reason, key: key,
		legs: func(_ storage.Txn, user string, _ *WalletChange) ([]journal.Leg, error) {
			return journal.LegsBetween(journal.Operator, journal.Wallet(user), amount), nil
		},
	})
}

// Debit takes money from the wallet of the user with this id or name, for an operator. The amount
// must be more than zero. If the amount is not available, Debit takes nothing. A reason is
// required; the key is optional.
func (b *Service) Debit(ctx context.Context, actor, idOrName string, amount money.Amount, reason, key string) (WalletChange, error) {
	if err := positive(amount); err != nil {
		return WalletChange{}, err
	}
	return b.change(ctx, change{
		operation: "debit", kind: journal.Debit, amount: -amount, actor: actor, user: idOrName, reason: reason, key: key,
		reserve: func(user string) (*ledger.Reservation, error) { return b.ledger.ReserveWallet(ctx, user, amount) },
		legs: func(_ storage.Txn, user string, _ *WalletChange) ([]journal.Leg, error) {
			return journal.LegsBetween(journal.Wallet(user), journal.Operator, amount), nil
		},
	})
}

// Clear clears what the user with this id or name owes after a refund or a dispute, for an
// operator. The wallet pays as much as it has, the operator bears the rest, and the user can spend
// again. A reason is required; the key is optional.
func (b *Service) Clear(ctx context.Context, actor, idOrName, reason, key string) (WalletChange, error) {
	var owed money.Amount // at the time of the request; what is owed later stays
	var r *ledger.Reservation
	return b.change(ctx, change{
		operation: "clear", kind: journal.Clear, actor: actor, user: idOrName, reason: reason, key: key,
		reserve: func(user string) (*ledger.Reservation, error) {
			funds, err := b.ledger.Funds(ctx, user)
			if err != nil {
				return nil, err
			}
			if owed = funds.Owed; owed == 0 {
				return nil, fault.New(fault.Conflict, "nothing is owed")
			}
			r, err = b.ledger.ReserveUpTo(ctx, user, owed)
			return r, err
		},
		legs: func(t storage.Txn, user string, x *WalletChange) ([]journal.Leg, error) {
			present, err := owedBy(t, user)
			if err != nil {
				return nil, err
			}
			cleared := min(owed, present)
			collected := min(r.Amount(), cleared)
			x.Amount, x.WrittenOff = -collected, cleared-collected
			if x.WrittenOff > 0 {
				account, err := records.ReadAccount(t, user)
				if err != nil {
					return nil, err
				}
				account.WrittenOff += x.WrittenOff
				if err := records.Accounts.Put(t, nil, account); err != nil {
					return nil, err
				}
			}
			return []journal.Leg{
				{Account: journal.Wallet(user), Amount: -collected},
				{Account: journal.Operator, Amount: -x.WrittenOff},
				{Account: journal.Receivable(user), Amount: cleared},
			}, nil
		},
	})
}

// change books a change of a wallet once per idempotency key, and records the audit event.
func (b *Service) change(ctx context.Context, c change) (WalletChange, error) {
	if err := audit.CheckReason(c.reason, true); err != nil {
		return WalletChange{}, err
	}
	ctx = audit.WithReason(ctx, c.reason) // callers other than the admin API have not set it
	user, err := b.directory.User(ctx, c.user)
	if err != nil {
		return WalletChange{}, err
	}
	own, err := idempotencyKey(records.OperatorScope(user.ID), keyOrRandom(c.key), c.operation, c.amount.String())
	if err != nil {
		return WalletChange{}, err
	}
	var reserve func() (*ledger.Reservation, error)
	if c.reserve != nil {
		reserve = func() (*ledger.Reservation, error) { return c.reserve(user.ID) }
	}
	id := journal.IDOf(user.ID, c.operation, own.Key)
	done, replayed, err := once(ctx, b, user.ID, own, reserve, func(t *ledger.Txn, now time.Time) (WalletChange, audit.Event, error) {
		x := WalletChange{User: user.ID, Order: id.String(), Amount: c.amount}
		event := audit.Event{Actor: c.actor, Action: "wallet." + c.operation, User: user.ID}
		before, err := journal.ReadState(t, journal.Wallet(user.ID))
		if err != nil {
			return x, event, err
		}
		legs, err := c.legs(t, user.ID, &x)
		if err != nil {
			return x, event, err
		}
		transfer := journal.Transfer{ID: id, Kind: c.kind, User: user.ID, Legs: legs, Actor: c.actor, Reason: c.reason}
		if x.WrittenOff > 0 {
			transfer.Reference = "written off " + x.WrittenOff.String()
		}
		if _, err := journal.Book(t, now, transfer); err != nil {
			return x, event, err
		}
		event.Detail = detail(x.Amount.String(), transfer.Reference) // the event has a field for the reason
		wallet, err := journal.ReadState(t, journal.Wallet(user.ID))
		if err != nil {
			return x, event, err
		}
		x.Balance = wallet.Balance
		event.Before, event.After = before.Balance.String(), wallet.Balance.String()
		x.Owed, err = owedBy(t, user.ID)
		return x, event, err
	})
	if err != nil {
		return WalletChange{}, b.explainReuse(ctx, own, err)
	}
	done.Replayed = replayed
	return done, nil
}

// explainReuse returns err. If err refuses a key that was used for another change of the wallet, it
// returns a fault that names that change instead.
func (b *Service) explainReuse(ctx context.Context, key ledger.IdempotencyKey, err error) error {
	if f, ok := errors.AsType[*fault.Fault](err); !ok || f.Code != fault.IdempotencyKeyReused {
		return err
	}
	record, readErr := b.ledger.IdempotencyRecord(ctx, key)
	if readErr != nil || record == nil {
		return err
	}
	var done WalletChange
	if json.Unmarshal(record.Result, &done) != nil || done.Amount == 0 && done.WrittenOff == 0 { // the key of a granted plan has the same scope
		return err
	}
	return fault.At(fault.IdempotencyKeyReused, "idempotency_key",
		"the idempotency key or case %.64q was used at %s for a change of %v, transfer %s; for a further change, use another one",
		key.Key, time.Unix(record.Time, 0).UTC().Format("2006-01-02 15:04 UTC"), done.Amount, done.Order)
}

// owedBy returns what a user owes after refunds and disputes.
func owedBy(r storage.Reader, user string) (money.Amount, error) {
	state, err := journal.ReadState(r, journal.Receivable(user))
	return -state.Balance, err
}

func positive(amount money.Amount) error {
	if amount <= 0 {
		return fault.At(fault.InvalidParameter, "amount", "amount is more than zero, this is %v", amount)
	}
	return nil
}
