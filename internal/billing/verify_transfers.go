package billing

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// booked is what a transfer that is booked here is about.
type booked struct {
	kind            journal.Kind
	user, reference string
	legs            map[journal.Account]money.Amount // by families of accounts
}

// transfer checks that a transfer exists and is what it should be.
func (v *verification) transfer(what string, id journal.ID, want booked) error {
	x, found, err := journal.ReadTransfer(v, id)
	if errors.Is(err, storage.ErrUnreadable) {
		return nil // the ledger tells of it
	}
	if err != nil {
		return err
	}
	if !found {
		v.problem("%s: the transfer %s does not exist", what, id)
		return nil
	}
	same := x.Kind == want.kind && x.User == want.user && x.Reference == want.reference
	for _, leg := range x.Legs {
		account := leg.Account.Family()
		same = same && want.legs[account] == leg.Amount
		delete(want.legs, account)
	}
	for _, left := range want.legs {
		same = same && left == 0
	}
	if !same {
		v.problem("%s: the transfer %s is not what it should be: a %s of %v for %q, about %q", what, id, x.Kind, x.Legs, x.User, x.Reference)
	}
	return nil
}

// purposes are the kinds of transfers that are booked for something that names
// them, and where to look for that.
var purposes = map[journal.Kind]func(*verification, *journal.Transfer) error{
	journal.TopUp: (*verification).forOrder, journal.Refund: (*verification).forOrder,
	journal.Dispute: (*verification).forOrder, journal.Restore: (*verification).forOrder,
	journal.Purchase: (*verification).forSubscription, journal.Renewal: (*verification).forSubscription,
	journal.Grant: (*verification).forSubscription,
}

// transfers checks that each transfer of these kinds is named once by what it was
// booked for, and that what operators have borne is what their clears say. What
// names transfers has been counted before.
func (v *verification) transfers() error {
	err := each(v, &accounts, accounts.Under(), func(a *accountRecord) error {
		v.borne.Add([]byte(a.User), int64(a.WrittenOff))
		return nil
	})
	if err != nil {
		return err
	}
	err = journal.ScanTransfers(v, func(x journal.Transfer) error {
		if purposes[x.Kind] != nil {
			v.accounted.Add(x.ID[:], -1)
		}
		v.borne.Add([]byte(x.User), -int64(borneBy(&x)))
		return nil
	})
	if err == nil && !v.accounted.Equal() {
		err = journal.ScanTransfers(v, func(x journal.Transfer) error {
			if purpose := purposes[x.Kind]; purpose != nil && !v.accounted.EqualFor(x.ID[:]) {
				return v.pass(purpose(v, &x))
			}
			return nil
		})
	}
	if err == nil && !v.borne.Equal() {
		err = v.writtenOff()
	}
	return err
}

// borneBy returns what an operator has borne by a transfer of what a user owed; below
// zero: what came back to the operator.
func borneBy(x *journal.Transfer) (borne money.Amount) {
	if x.Kind != journal.Clear && x.Kind != journal.Restore {
		return 0
	}
	for _, leg := range x.Legs {
		if leg.Account.Family() == journal.Operator {
			borne -= leg.Amount
		}
	}
	return borne
}

// writtenOff finds the users for whom operators have borne another amount than is written down,
// among the few for whom the multiset differs.
func (v *verification) writtenOff() error {
	borne := make(map[string]money.Amount)
	err := journal.ScanTransfers(v, func(x journal.Transfer) error {
		if by := borneBy(&x); by != 0 && !v.borne.EqualFor([]byte(x.User)) {
			borne[x.User] += by
		}
		return nil
	})
	err = cmp.Or(err, each(v, &accounts, accounts.Under(), func(a *accountRecord) error {
		if !v.borne.EqualFor([]byte(a.User)) && a.WrittenOff != borne[a.User] {
			v.problem("user %s: operators have borne %v of what was owed, written down are %v", a.User, borne[a.User], a.WrittenOff)
		}
		delete(borne, a.User)
		return nil
	}))
	for user, by := range borne {
		v.problem("user %s: operators have borne %v of what was owed, which is not written down", user, by)
	}
	return err
}

// forOrder looks for the order of a transfer.
func (v *verification) forOrder(x *journal.Transfer) error {
	o, err := readOrder(v, x.Reference)
	if err == nil && (o == nil || !slices.Contains(o.Transfers, x.ID)) {
		v.problem("transfer %s: it is a %s of order %q, which does not name it", x.ID, x.Kind, x.Reference)
	}
	return err
}

// forSubscription looks for the sale of a transfer, or the period that it has
// opened.
func (v *verification) forSubscription(x *journal.Transfer) error {
	id, err := strconv.ParseInt(strings.TrimPrefix(x.Reference, reference(0)[:len(reference(0))-1]), 10, 64)
	if err != nil || reference(id) != x.Reference {
		v.problem("transfer %s: it is a %s of %q, which is no subscription", x.ID, x.Kind, x.Reference)
		return nil
	}
	names := 0
	sold := make(map[int64]bool) // the periods whose quota came with a sale
	of, err := subscriptions.Get(v, x.User, id)
	if err != nil {
		return err
	}
	if of == nil {
		of = &subscriptionRecord{ID: id, User: x.User}
	}
	for have, err := range of.sales(v) {
		if err != nil {
			return err
		}
		if have.Transfer == x.ID {
			names++
		}
		if start, ok := have.grants(); ok {
			sold[start] = true
		}
	}
	for have, err := range periods.Scan(v, periods.Under(x.User, id)) {
		if err != nil {
			return err
		}
		if grantID(id, have.Start) == x.ID && !sold[have.Start] {
			names++
		}
	}
	if names != 1 {
		v.problem("transfer %s: it is a %s of %s, and %d sales and periods of it are by this transfer", x.ID, x.Kind, x.Reference, names)
	}
	return nil
}

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

// answers checks that what was answered to an idempotency key has happened, and that each
// sale was answered once: all are made under one. A change of a wallet may
// be booked without one.
func (v *verification) answers() error {
	err := journal.ScanAnswers(v, "", func(where, scope string, result json.RawMessage) error {
		if a, is := readAnswer(result); is {
			return v.answer(where, scope, a)
		}
		return nil
	})
	if err != nil || v.answered.Equal() {
		return err
	}
	return each(v, &subscriptions, subscriptions.Under(), func(s *subscriptionRecord) error {
		for have, err := range s.sales(v) {
			if err == nil && !v.answered.EqualFor(have.Transfer[:]) {
				err = v.answersTo(s.User, s.ID, have.Transfer)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// answer checks one answer against the transfer that it names.
func (v *verification) answer(where, scope string, a answer) error {
	var id journal.ID
	if err := id.UnmarshalText([]byte(a.Order)); err != nil {
		v.problem("%s: it was answered the order %q: %v", where, a.Order, err)
		return nil
	}
	if a.Wallet != nil {
		v.answered.Add(id[:], -1)
	}
	x, found, err := journal.ReadTransfer(v, id)
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
		if leg.Account == journal.Wallet(a.User) {
			moved += leg.Amount
		}
	}
	same := x.User == a.User && strings.TrimPrefix(scope, operatorScope("")) == a.User
	switch x.Kind {
	case journal.Purchase, journal.Renewal, journal.Grant:
		same = same && a.Wallet != nil && moved == -a.Wallet.Charged && x.Reference == reference(a.Subscription)
	case journal.Credit, journal.Debit, journal.Clear:
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
func (v *verification) answersTo(user string, subscription int64, sold journal.ID) error {
	var err error
	times := 0
	for _, scope := range []string{user, operatorScope(user)} {
		err = cmp.Or(err, journal.ScanAnswers(v, scope, func(_, _ string, result json.RawMessage) error {
			if a, is := readAnswer(result); is && a.Wallet != nil && a.Order == sold.String() {
				times++
			}
			return nil
		}))
	}
	if err == nil && times != 1 {
		v.problem("subscription %d: the sale by the transfer %s is the answer to %d idempotency keys", subscription, sold, times)
	}
	return err
}
