package verify

import (
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// effect is what a leg may do to an account.
type effect byte

const (
	increases effect = 1 << iota // the balance rises
	decreases                    // the balance falls
	reserves                     // more is held
	releases                     // less is held
)

// Classes of the accounts of users. System accounts have their families as classes.
const (
	walletClass     journal.Account = "wallet"
	quotaClass      journal.Account = "quota"
	receivableClass journal.Account = "receivable"
	budgetClass     journal.Account = "budget"
	paidClass       journal.Account = "s/paid"
)

// shapes are the allowed effects of the transfers of a kind, by the class of the account.
var shapes = map[journal.Kind]map[journal.Account]effect{
	journal.Calls: { // the final settlement of a call may return money
		walletClass: increases | decreases, quotaClass: increases | decreases, budgetClass: increases | decreases, journal.Spent: increases | decreases,
	},
	journal.Purchase: {walletClass: decreases, journal.Sold: increases, journal.Granted: decreases, quotaClass: increases},
	journal.Renewal:  {walletClass: decreases, journal.Sold: increases, journal.Granted: decreases, quotaClass: increases},
	journal.Grant:    {journal.Granted: decreases, quotaClass: increases},
	journal.TopUp:    {paidClass: decreases, walletClass: increases},
	journal.Refund:   {walletClass: decreases, receivableClass: decreases, paidClass: increases},
	journal.Dispute:  {walletClass: decreases, receivableClass: decreases, paidClass: increases},
	journal.Restore:  {paidClass: decreases, receivableClass: increases, journal.Operator: increases, walletClass: increases},
	journal.Credit:   {journal.Operator: decreases, walletClass: increases},
	journal.Debit:    {walletClass: decreases, journal.Operator: increases},
	journal.Clear:    {walletClass: decreases, journal.Operator: decreases, receivableClass: increases},
	journal.Hold:     {walletClass: reserves, quotaClass: reserves, budgetClass: reserves},
	journal.Settle:   {walletClass: decreases | releases, quotaClass: decreases | releases, budgetClass: decreases | releases, journal.Spent: increases},
	journal.Void:     {walletClass: releases, quotaClass: releases, budgetClass: releases},
}

// shape checks that a transfer has only the effects that its kind allows, and only on accounts of
// its user. Transfers of calls change accounts of many users.
func (v *verification) shape(x *journal.Transfer) {
	allowed, known := shapes[x.Kind]
	if !known {
		v.report(whereTransfer(x.ID), "%q is not a kind of transfer", x.Kind)
		return
	}
	switch {
	case x.Kind == journal.Calls && x.User != "":
		v.report(whereTransfer(x.ID), "it is a transfer of calls, but has user %q", x.User)
	case x.Kind != journal.Calls && x.User == "":
		v.report(whereTransfer(x.ID), "it is a %s without a user", x.Kind)
	}
	for _, leg := range x.Legs {
		owner, class := leg.Account.Owner(), classOf(leg.Account)
		switch does := effectOf(leg); {
		case does == 0:
			v.report(whereTransfer(x.ID), "its leg on %s is zero", leg.Account)
		case does&^allowed[class] != 0:
			v.report(whereTransfer(x.ID), "a %s must not change %s by %s", x.Kind, leg.Account, funds(leg.Amount, leg.Held))
		case owner != "" && owner != x.User && x.User != "":
			v.report(whereTransfer(x.ID), "it is of user %q, but changes %s", x.User, leg.Account)
		case owner == "" && leg.Account.Family().On(time.UnixMilli(x.Time)) != leg.Account:
			v.report(whereTransfer(x.ID), "it is of %s, but changes %s", moment(time.UnixMilli(x.Time)), leg.Account)
		}
	}
}

// effectOf returns the effect of a leg.
func effectOf(l journal.Leg) (does effect) {
	switch {
	case l.Amount > 0:
		does |= increases
	case l.Amount < 0:
		does |= decreases
	}
	switch {
	case l.Held > 0:
		does |= reserves
	case l.Held < 0:
		does |= releases
	}
	return does
}

// classOf returns the class of an account, or an empty class if no such account may exist.
func classOf(a journal.Account) journal.Account {
	if a.Owner() == "" {
		switch family := a.Family(); family {
		case journal.Spent, journal.Sold, journal.Granted, journal.Operator:
			return family
		default:
			if provider, ok := strings.CutPrefix(string(family), string(paidClass)+"/"); ok && provider != "" {
				return paidClass
			}
			return ""
		}
	}
	kind, period, hasPeriod := strings.Cut(a.Own(), "/")
	switch class := journal.Account(kind); class {
	case walletClass, receivableClass:
		if !hasPeriod {
			return class
		}
	case quotaClass:
		id, start, _ := strings.Cut(period, "/")
		if isInteger(id) && isInteger(start) {
			return class
		}
	case budgetClass:
		if at := strings.LastIndexByte(period, '/'); at > 0 && isInteger(period[at+1:]) {
			return class
		}
	}
	return ""
}

// isInteger reports whether text is an integer in the form that names of accounts have.
func isInteger(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text
}
