package billing

import (
	"cmp"
	"encoding/json"
	"errors"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// answer is what is kept of a receipt, or of a change of a wallet, to be answered
// again.
type answer struct {
	User         string        `json:"user"`
	Order        string        `json:"order"`
	Subscription int64         `json:"subscription_id"`
	Wallet       *WalletCharge `json:"wallet"` // of a receipt
	Amount       money.Amount  `json:"amount"` // of a change
}

// readAnswer returns an answer; false when it is about no transfer.
func readAnswer(result json.RawMessage) (a answer, is bool) {
	return a, json.Unmarshal(result, &a) == nil && a.Order != ""
}

// answers checks that what was answered to a claim has happened, and that each
// sale was answered once: all are made under a claim. A change of a wallet may
// be booked without one.
func (v *verification) answers() error {
	err := ledger.ScanAnswers(v, "", func(where, scope string, result json.RawMessage) error {
		if a, is := readAnswer(result); is {
			return v.answer(where, scope, a)
		}
		return nil
	})
	if err != nil || v.answered.Equal() {
		return err
	}
	return each(v, subscriptionPrefix, func(_ []byte, s subscriptionRecord) error {
		var failed error
		err := s.sales(v, func(have sale) bool {
			if !v.answered.EqualFor(have.Transfer[:]) {
				failed = v.answersTo(s.User, s.ID, have.Transfer)
			}
			return failed == nil
		})
		return cmp.Or(err, failed)
	})
}

// answer checks one answer against the transfer that it names.
func (v *verification) answer(where, scope string, a answer) error {
	var id ledger.ID
	if err := id.UnmarshalText([]byte(a.Order)); err != nil {
		v.problem("%s: it was answered the order %q: %v", where, a.Order, err)
		return nil
	}
	if a.Wallet != nil {
		v.answered.Add(id[:], -1)
	}
	x, found, err := ledger.ReadTransfer(v, id)
	if errors.Is(err, storage.ErrUnreadable) {
		return nil // the ledger tells of it
	}
	if err != nil {
		return err
	}
	if !found {
		v.problem("%s: it was answered the transfer %s, which does not exist", where, id)
		return nil
	}
	var moved money.Amount
	for _, leg := range x.Legs {
		if leg.Account == ledger.Wallet(a.User) {
			moved += leg.Amount
		}
	}
	same := x.User == a.User && strings.TrimPrefix(scope, operatorScope("")) == a.User
	switch x.Kind {
	case ledger.Purchase, ledger.Renewal, ledger.Grant:
		same = same && a.Wallet != nil && moved == -a.Wallet.Charged && x.Reference == reference(a.Subscription)
	case ledger.Credit, ledger.Debit, ledger.Clear:
		same = same && a.Wallet == nil && moved == a.Amount
	default:
		same = false
	}
	if !same {
		v.problem("%s: it was answered the transfer %s, which is another: a %s of %v for %q, about %q", where, id, x.Kind, x.Legs, x.User, x.Reference)
	}
	return nil
}

// answersTo looks for the answers to a sale.
func (v *verification) answersTo(user string, subscription int64, sold ledger.ID) error {
	var err error
	times := 0
	for _, scope := range []string{user, operatorScope(user)} {
		err = cmp.Or(err, ledger.ScanAnswers(v, scope, func(_, _ string, result json.RawMessage) error {
			if a, is := readAnswer(result); is && a.Wallet != nil && a.Order == sold.String() {
				times++
			}
			return nil
		}))
	}
	if err == nil && times != 1 {
		v.problem("subscription %d: the sale by the transfer %s is the answer to %d claims", subscription, sold, times)
	}
	return err
}
