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
	gives effect = 1 << iota // the balance rises
	takes                    // the balance falls
	sets                     // more is held
	frees                    // less is held
)

// Classes of the accounts of users. System accounts have their families as classes.
const (
	walletClass     journal.Account = "wallet"
	quotaClass      journal.Account = "quota"
	receivableClass journal.Account = "receivable"
	budgetClass     journal.Account = "budget"
	paidClass       journal.Account = "s/paid"
)

// shapes are which accounts the transfers of a kind may change, by their class,
// and how. Nothing else is ever booked.
var shapes = map[journal.Kind]map[journal.Account]effect{
	journal.Calls: { // the last settlement of a call may give back
		walletClass: gives | takes, quotaClass: gives | takes, budgetClass: gives | takes, journal.Spent: gives | takes,
	},
	journal.Purchase: {walletClass: takes, journal.Sold: gives, journal.Granted: takes, quotaClass: gives},
	journal.Renewal:  {walletClass: takes, journal.Sold: gives, journal.Granted: takes, quotaClass: gives},
	journal.Grant:    {journal.Granted: takes, quotaClass: gives},
	journal.TopUp:    {paidClass: takes, walletClass: gives},
	journal.Refund:   {walletClass: takes, receivableClass: takes, paidClass: gives},
	journal.Dispute:  {walletClass: takes, receivableClass: takes, paidClass: gives},
	journal.Restore:  {paidClass: takes, receivableClass: gives, journal.Operator: gives, walletClass: gives},
	journal.Credit:   {journal.Operator: takes, walletClass: gives},
	journal.Debit:    {walletClass: takes, journal.Operator: gives},
	journal.Clear:    {walletClass: takes, journal.Operator: takes, receivableClass: gives},
	journal.Hold:     {walletClass: sets, quotaClass: sets, budgetClass: sets},
	journal.Settle:   {walletClass: takes | frees, quotaClass: takes | frees, budgetClass: takes | frees, journal.Spent: gives},
	journal.Void:     {walletClass: frees, quotaClass: frees, budgetClass: frees},
}

// shape checks that a transfer changes only what its kind may change, and only of its user.
// Transfers of calls are of many users.
func (v *verification) shape(x *journal.Transfer) {
	may, known := shapes[x.Kind]
	if !known {
		v.report(whereTransfer(x.ID), "%q is no kind of transfer", x.Kind)
		return
	}
	switch {
	case x.Kind == journal.Calls && x.User != "":
		v.report(whereTransfer(x.ID), "it is of calls, and said to be of user %q alone", x.User)
	case x.Kind != journal.Calls && x.User == "":
		v.report(whereTransfer(x.ID), "it is a %s of no user", x.Kind)
	}
	for _, leg := range x.Legs {
		owner, class := leg.Account.Owner(), classOf(leg.Account)
		switch does := effectOf(leg); {
		case does == 0:
			v.report(whereTransfer(x.ID), "its leg on %s is of nothing", leg.Account)
		case does&^may[class] != 0:
			v.report(whereTransfer(x.ID), "it is a %s, which does not change %s by %s", x.Kind, leg.Account, funds(leg.Amount, leg.Held))
		case owner != "" && owner != x.User && x.User != "":
			v.report(whereTransfer(x.ID), "it is of user %q, and changes %s", x.User, leg.Account)
		case owner == "" && leg.Account.Family().On(time.UnixMilli(x.Time)) != leg.Account:
			v.report(whereTransfer(x.ID), "it is of %s, and changes %s", moment(time.UnixMilli(x.Time)), leg.Account)
		}
	}
}

// effectOf returns what a leg does.
func effectOf(l journal.Leg) (does effect) {
	switch {
	case l.Amount > 0:
		does |= gives
	case l.Amount < 0:
		does |= takes
	}
	switch {
	case l.Held > 0:
		does |= sets
	case l.Held < 0:
		does |= frees
	}
	return does
}

// classOf returns the class of the account; empty for one that this package never makes.
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
	kind, period, some := strings.Cut(a.Own(), "/")
	switch class := journal.Account(kind); class {
	case walletClass, receivableClass:
		if !some {
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

// isInteger reports whether text is an integer as accounts are named by.
func isInteger(text string) bool {
	n, err := strconv.ParseInt(text, 10, 64)
	return err == nil && strconv.FormatInt(n, 10) == text
}
