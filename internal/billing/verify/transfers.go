package verify

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// booked is the expected content of a transfer.
type booked struct {
	kind            journal.Kind
	user, reference string
	legs            map[journal.Account]money.Amount // by family of accounts
}

// read returns a transfer. If the transfer does not exist, read reports a problem. It does not
// report an unreadable transfer, because the verification of the ledger does.
func (v *verification) read(id journal.ID, problem string, args ...any) (x journal.Transfer, found bool, err error) {
	x, found, err = journal.ReadTransfer(v, id)
	switch {
	case errors.Is(err, storage.ErrUnreadable):
		return x, false, nil
	case err == nil && !found:
		v.problem(problem, args...)
	}
	return x, found, err
}

// transfer checks that a transfer exists and has the expected content.
func (v *verification) transfer(what string, id journal.ID, want booked) error {
	x, found, err := v.read(id, "%s: the transfer %s does not exist", what, id)
	if !found || err != nil {
		return err
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

// purposes are the kinds of transfers that a record of billing names, and how that record is found.
var purposes = map[journal.Kind]func(*verification, *journal.Transfer) error{
	journal.TopUp: (*verification).forOrder, journal.Refund: (*verification).forOrder,
	journal.Dispute: (*verification).forOrder, journal.Restore: (*verification).forOrder,
	journal.Purchase: (*verification).forSubscription, journal.Renewal: (*verification).forSubscription,
	journal.Grant: (*verification).forSubscription,
}

// transfers checks that each transfer of these kinds is named once by a record, and that the
// transfers match the amounts that operators have borne. The records were counted before.
func (v *verification) transfers() error {
	err := each(v, &records.Accounts, records.Accounts.Under(), func(a *records.AccountRecord) error {
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

// borneBy returns how much of a user's debt the operator bears by a transfer; below zero if the
// operator gets money back.
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

// writtenOff reports the users whose record has another amount than the transfers. It looks only at
// users for whom the multiset differs.
func (v *verification) writtenOff() error {
	borne := make(map[string]money.Amount)
	err := journal.ScanTransfers(v, func(x journal.Transfer) error {
		if by := borneBy(&x); by != 0 && !v.borne.EqualFor([]byte(x.User)) {
			borne[x.User] += by
		}
		return nil
	})
	err = cmp.Or(err, each(v, &records.Accounts, records.Accounts.Under(), func(a *records.AccountRecord) error {
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

// forOrder checks that the order of a transfer names it.
func (v *verification) forOrder(x *journal.Transfer) error {
	o, err := records.ReadOrder(v, x.Reference)
	if err == nil && (o == nil || !slices.Contains(o.Transfers, x.ID)) {
		v.problem("transfer %s: it is a %s of order %q, which does not name it", x.ID, x.Kind, x.Reference)
	}
	return err
}

// forSubscription checks that exactly one sale, or one opened period, names a transfer.
func (v *verification) forSubscription(x *journal.Transfer) error {
	id, err := strconv.ParseInt(strings.TrimPrefix(x.Reference, records.ReferencePrefix), 10, 64)
	if err != nil || records.Reference(id) != x.Reference {
		v.problem("transfer %s: it is a %s of %q, which is no subscription", x.ID, x.Kind, x.Reference)
		return nil
	}
	names := 0
	sold := make(map[int64]bool) // the periods whose quota came with a sale
	of, err := records.Subscriptions.Get(v, x.User, id)
	if err != nil {
		return err
	}
	if of == nil {
		of = &records.SubscriptionRecord{ID: id, User: x.User}
	}
	for have, err := range of.Sales(v) {
		if err != nil {
			return err
		}
		if have.Transfer == x.ID {
			names++
		}
		if start, ok := have.Grants(); ok {
			sold[start] = true
		}
	}
	for have, err := range records.Periods.Scan(v, records.Periods.Under(x.User, id)) {
		if err != nil {
			return err
		}
		if records.GrantID(id, have.Start) == x.ID && !sold[have.Start] {
			names++
		}
	}
	if names != 1 {
		v.problem("transfer %s: it is a %s of %s, and %d sales and periods of it are by this transfer", x.ID, x.Kind, x.Reference, names)
	}
	return nil
}

// answer is the stored answer to an idempotency key: a receipt, or a change of a wallet.
type answer struct {
	User         string `json:"user"`
	Order        string `json:"order"`
	Subscription int64  `json:"subscription_id"`
	Wallet       *struct {
		Charged money.Amount `json:"charged"`
	} `json:"wallet"` // in a receipt
	Amount money.Amount `json:"amount"` // of a change
}

// readAnswer decodes an answer. It returns false if the answer names no transfer.
func readAnswer(result json.RawMessage) (a answer, is bool) {
	return a, json.Unmarshal(result, &a) == nil && a.Order != ""
}

// answers checks each stored answer against its transfer, and that each sale has one answer: every
// sale has an idempotency key. Changes of a wallet may have none.
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
	return each(v, &records.Subscriptions, records.Subscriptions.Under(), func(s *records.SubscriptionRecord) error {
		for have, err := range s.Sales(v) {
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
	x, found, err := v.read(id, "%s: it was answered the transfer %s, which does not exist", where, id)
	if !found || err != nil {
		return err
	}
	var moved money.Amount
	for _, leg := range x.Legs {
		if leg.Account == journal.Wallet(a.User) {
			moved += leg.Amount
		}
	}
	same := x.User == a.User && strings.TrimPrefix(scope, records.OperatorScope("")) == a.User
	switch x.Kind {
	case journal.Purchase, journal.Renewal, journal.Grant:
		same = same && a.Wallet != nil && moved == -a.Wallet.Charged && x.Reference == records.Reference(a.Subscription)
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

// answersTo checks that one stored answer names a sale.
func (v *verification) answersTo(user string, subscription int64, sold journal.ID) error {
	var err error
	times := 0
	for _, scope := range []string{user, records.OperatorScope(user)} {
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
