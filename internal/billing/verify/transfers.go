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

// expectedTransfer is the expected content of a transfer.
type expectedTransfer struct {
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
func (v *verification) transfer(what string, id journal.ID, want expectedTransfer) error {
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
		v.problem("%s: the transfer %s has wrong content: a %s of %v for %q, about %q", what, id, x.Kind, x.Legs, x.User, x.Reference)
	}
	return nil
}

// purposes are the checks of the kinds of transfers that a record of billing must name.
var purposes = map[journal.Kind]func(*verification, *journal.Transfer) error{
	journal.TopUp: (*verification).forOrder, journal.Refund: (*verification).forOrder,
	journal.Dispute: (*verification).forOrder, journal.Restore: (*verification).forOrder,
	journal.Purchase: (*verification).forSubscription, journal.Renewal: (*verification).forSubscription,
	journal.Grant: (*verification).forSubscription,
}

// transfers checks that one record names each transfer of these kinds, and that the transfers match
// the amounts that operators have borne. The other steps must have counted the records.
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

// borneBy returns the part of what a user owes that the operator bears by a transfer. It is negative
// if the operator gets money back.
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

// writtenOff reports the users whose record has another amount than the transfers. It examines only
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
			v.problem("user %s: operators have borne %v of the debt, but the record says %v", a.User, borne[a.User], a.WrittenOff)
		}
		delete(borne, a.User)
		return nil
	}))
	for user, by := range borne {
		v.problem("user %s: operators have borne %v of the debt, but there is no record", user, by)
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
		v.problem("transfer %s: it is a %s of %q, which is not a subscription", x.ID, x.Kind, x.Reference)
		return nil
	}
	names := 0
	sold := make(map[int64]bool) // periods whose quota was granted with a sale
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
		v.problem("transfer %s: it is a %s of %s, but %d of its sales and periods name this transfer", x.ID, x.Kind, x.Reference, names)
	}
	return nil
}

// result is the stored result of an idempotency key: a receipt, or a change of a wallet.
type result struct {
	User         string `json:"user"`
	Order        string `json:"order"`
	Subscription int64  `json:"subscription_id"`
	Wallet       *struct {
		Charged money.Amount `json:"charged"`
	} `json:"wallet"` // in a receipt
	Amount money.Amount `json:"amount"` // of a change
}

// decodeResult decodes a result. It returns false if the result names no transfer.
func decodeResult(stored json.RawMessage) (r result, named bool) {
	return r, json.Unmarshal(stored, &r) == nil && r.Order != ""
}

// results checks each stored result against its transfer, and that each sale has one result, because
// every sale has an idempotency key. A change of a wallet may have none.
func (v *verification) results() error {
	err := journal.ScanResults(v, "", func(where, scope string, stored json.RawMessage) error {
		if r, named := decodeResult(stored); named {
			return v.result(where, scope, r)
		}
		return nil
	})
	if err != nil || v.answered.Equal() {
		return err
	}
	return each(v, &records.Subscriptions, records.Subscriptions.Under(), func(s *records.SubscriptionRecord) error {
		for have, err := range s.Sales(v) {
			if err == nil && !v.answered.EqualFor(have.Transfer[:]) {
				err = v.checkSaleResult(s.User, s.ID, have.Transfer)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// result checks one result against the transfer that it names.
func (v *verification) result(where, scope string, r result) error {
	var id journal.ID
	if err := id.UnmarshalText([]byte(r.Order)); err != nil {
		v.problem("%s: its result has the order %q: %v", where, r.Order, err)
		return nil
	}
	if r.Wallet != nil {
		v.answered.Add(id[:], -1)
	}
	x, found, err := v.read(id, "%s: its result names the transfer %s, which does not exist", where, id)
	if !found || err != nil {
		return err
	}
	var moved money.Amount
	for _, leg := range x.Legs {
		if leg.Account == journal.Wallet(r.User) {
			moved += leg.Amount
		}
	}
	same := x.User == r.User && strings.TrimPrefix(scope, records.OperatorScope("")) == r.User
	switch x.Kind {
	case journal.Purchase, journal.Renewal, journal.Grant:
		same = same && r.Wallet != nil && moved == -r.Wallet.Charged && x.Reference == records.Reference(r.Subscription)
	case journal.Credit, journal.Debit, journal.Clear:
		same = same && r.Wallet == nil && moved == r.Amount
	default:
		same = false
	}
	if !same {
		v.problem("%s: its result names the transfer %s, which does not match: a %s of %v for %q, about %q", where, id, x.Kind, x.Legs, x.User, x.Reference)
	}
	return nil
}

// checkSaleResult checks that exactly one stored result names a sale.
func (v *verification) checkSaleResult(user string, subscription int64, sold journal.ID) error {
	var err error
	times := 0
	for _, scope := range []string{user, records.OperatorScope(user)} {
		err = cmp.Or(err, journal.ScanResults(v, scope, func(_, _ string, stored json.RawMessage) error {
			if r, named := decodeResult(stored); named && r.Wallet != nil && r.Order == sold.String() {
				times++
			}
			return nil
		}))
	}
	if err == nil && times != 1 {
		v.problem("subscription %d: the sale by the transfer %s is the result of %d idempotency keys", subscription, sold, times)
	}
	return err
}
