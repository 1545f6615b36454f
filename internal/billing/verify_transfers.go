package billing

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// booked is what a transfer that is booked here is about.
type booked struct {
	kind            ledger.Kind
	user, reference string
	legs            map[ledger.Account]money.Amount // by families of accounts
}

// transfer checks that a transfer exists and is what it should be.
func (v *verification) transfer(what string, id ledger.ID, want booked) error {
	x, found, err := ledger.ReadTransfer(v, id)
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
var purposes = map[ledger.Kind]func(*verification, *ledger.Transfer) error{
	ledger.TopUp: (*verification).forOrder, ledger.Refund: (*verification).forOrder,
	ledger.Dispute: (*verification).forOrder, ledger.Restore: (*verification).forOrder,
	ledger.Purchase: (*verification).forSubscription, ledger.Renewal: (*verification).forSubscription,
	ledger.Grant: (*verification).forSubscription,
}

// transfers checks that each transfer of these kinds is named once by what it was
// booked for, and that what operators have borne is what their clears say. What
// names transfers has been counted before.
func (v *verification) transfers() error {
	err := ledger.ScanTransfers(v, func(x ledger.Transfer) error {
		if purposes[x.Kind] != nil {
			v.accounted.Add(x.ID[:], -1)
		}
		v.borne.Add([]byte(x.User), -int64(borneBy(&x)))
		return nil
	})
	if err == nil && !v.accounted.Equal() {
		err = ledger.ScanTransfers(v, func(x ledger.Transfer) error {
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

// borneBy is what an operator has borne by a transfer of what a user owed; below
// zero: what came back to him.
func borneBy(x *ledger.Transfer) (borne money.Amount) {
	if x.Kind != ledger.Clear && x.Kind != ledger.Restore {
		return 0
	}
	for _, leg := range x.Legs {
		if leg.Account.Family() == ledger.Operator {
			borne -= leg.Amount
		}
	}
	return borne
}

// writtenOff finds the users for whom operators have borne something else than
// is written down, among the few of whom that may be so.
func (v *verification) writtenOff() error {
	borne := make(map[string]money.Amount)
	err := ledger.ScanTransfers(v, func(x ledger.Transfer) error {
		if by := borneBy(&x); by != 0 && !v.borne.EqualFor([]byte(x.User)) {
			borne[x.User] += by
		}
		return nil
	})
	err = cmp.Or(err, each(v, accountPrefix, func(key []byte, a accountRecord) error {
		user := string(key[len(accountPrefix)+1:])
		if !v.borne.EqualFor([]byte(user)) && a.WrittenOff != borne[user] {
			v.problem("user %s: operators have borne %v of what was owed, written down are %v", user, borne[user], a.WrittenOff)
		}
		delete(borne, user)
		return nil
	}))
	for user, by := range borne {
		v.problem("user %s: operators have borne %v of what was owed, which is not written down", user, by)
	}
	return err
}

// forOrder looks for the order of a transfer.
func (v *verification) forOrder(x *ledger.Transfer) error {
	o, found, err := readOrder(v, x.Reference)
	if err == nil && (!found || !slices.Contains(o.Moves, x.ID)) {
		v.problem("transfer %s: it is a %s of order %q, which does not name it", x.ID, x.Kind, x.Reference)
	}
	return err
}

// forSubscription looks for the sale of a transfer, or the period that it has
// opened.
func (v *verification) forSubscription(x *ledger.Transfer) error {
	id, err := strconv.ParseInt(strings.TrimPrefix(x.Reference, reference(0)[:len(reference(0))-1]), 10, 64)
	if err != nil || reference(id) != x.Reference {
		v.problem("transfer %s: it is a %s of %q, which is no subscription", x.ID, x.Kind, x.Reference)
		return nil
	}
	names := 0
	sold := make(map[int64]bool) // the periods whose quota came with a sale
	of := subscriptionRecord{ID: id, User: x.User}
	if _, err := storage.GetRecord(v, of.key(), &of); err != nil {
		return err
	}
	err = of.sales(v, func(s sale) bool {
		if s.Transfer == x.ID {
			names++
		}
		if start, ok := s.grants(); ok {
			sold[start] = true
		}
		return true
	})
	lo, hi := storage.Below(periodPrefix, x.User, id)
	err = cmp.Or(err, scan(v, lo, hi, func(key []byte, _ periodRecord) bool {
		if start := integer(key, len(lo)); grantID(id, start) == x.ID && !sold[start] {
			names++
		}
		return true
	}))
	if err == nil && names != 1 {
		v.problem("transfer %s: it is a %s of %s, and %d sales and periods of it are by this transfer", x.ID, x.Kind, x.Reference, names)
	}
	return err
}
