package ledger

import (
	"strconv"
	"strings"
	"time"
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
	walletClass     Account = "wallet"
	quotaClass      Account = "quota"
	receivableClass Account = "receivable"
	budgetClass     Account = "budget"
	paidClass       Account = "s/paid"
)

// shapes are which accounts the transfers of a kind may change, by their class,
// and how. Nothing else is ever booked.
var shapes = map[Kind]map[Account]effect{
	Calls: { // the last settlement of a call may give back
		walletClass: gives | takes, quotaClass: gives | takes, budgetClass: gives | takes, Spent: gives | takes,
	},
	Purchase: {walletClass: takes, Sold: gives, Granted: takes, quotaClass: gives},
	Renewal:  {walletClass: takes, Sold: gives, Granted: takes, quotaClass: gives},
	Grant:    {Granted: takes, quotaClass: gives},
	TopUp:    {paidClass: takes, walletClass: gives},
	Refund:   {walletClass: takes, receivableClass: takes, paidClass: gives},
	Dispute:  {walletClass: takes, receivableClass: takes, paidClass: gives},
	Restore:  {paidClass: takes, receivableClass: gives, Operator: gives, walletClass: gives},
	Credit:   {Operator: takes, walletClass: gives},
	Debit:    {walletClass: takes, Operator: gives},
	Clear:    {walletClass: takes, Operator: takes, receivableClass: gives},
	Hold:     {walletClass: sets, quotaClass: sets, budgetClass: sets},
	Settle:   {walletClass: takes | frees, quotaClass: takes | frees, budgetClass: takes | frees, Spent: gives},
	Void:     {walletClass: frees, quotaClass: frees, budgetClass: frees},
}

// shape checks that a transfer changes only what its kind may change, and only of its user.
// Transfers of calls are of many users.
func (v *verification) shape(x *Transfer) {
	may, known := shapes[x.Kind]
	if !known {
		v.tell(x.where(), "%q is no kind of transfer", x.Kind)
		return
	}
	switch {
	case x.Kind == Calls && x.User != "":
		v.tell(x.where(), "it is of calls, and said to be of user %q alone", x.User)
	case x.Kind != Calls && x.User == "":
		v.tell(x.where(), "it is a %s of no user", x.Kind)
	}
	for _, leg := range x.Legs {
		owner, class := leg.Account.Owner(), leg.Account.class()
		switch does := leg.effect(); {
		case does == 0:
			v.tell(x.where(), "its leg on %s is of nothing", leg.Account)
		case does&^may[class] != 0:
			v.tell(x.where(), "it is a %s, which does not change %s by %s", x.Kind, leg.Account, funds(State{Balance: leg.Amount, Held: leg.Held}))
		case owner != "" && owner != x.User && x.User != "":
			v.tell(x.where(), "it is of user %q, and changes %s", x.User, leg.Account)
		case owner == "" && leg.Account.Family().on(time.UnixMilli(x.Time)) != leg.Account:
			v.tell(x.where(), "it is of %s, and changes %s", moment(time.UnixMilli(x.Time)), leg.Account)
		}
	}
}

// effect is what the leg does.
func (l Leg) effect() (does effect) {
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

// class returns the class of the account; empty for one that this package never makes.
func (a Account) class() Account {
	if a.Owner() == "" {
		switch family := a.Family(); family {
		case Spent, Sold, Granted, Operator:
			return family
		default:
			if provider, ok := strings.CutPrefix(string(family), string(paidClass)+"/"); ok && provider != "" {
				return paidClass
			}
			return ""
		}
	}
	kind, period, some := strings.Cut(a.own(), "/")
	switch class := Account(kind); class {
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
