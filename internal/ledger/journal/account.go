package journal

import (
	"strconv"
	"strings"
	"time"
)

// Account is the name of an account. The accounts of a user begin with "u/<user id>/", so that
// they lie together in the store. System accounts begin with "s/".
type Account string

// The system accounts balance the accounts of users. Each is split by UTC day, as
// s/spent/20261120, so that no sum over the years leaves the range of an amount.
const (
	Spent    Account = "s/spent"    // cost of calls and tasks
	Sold     Account = "s/sold"     // payments for plans
	Granted  Account = "s/granted"  // quota that plans granted; negative
	Operator Account = "s/operator" // credits and debits of operators; negative
)

// Paid returns the account of a payment service: the negative sum of the payments of users.
func Paid(provider string) Account { return Account("s/paid/" + provider) }

// UserPrefix is the prefix of the accounts of users.
const UserPrefix = "u/"

func ownPrefix(user string) Account { return Account(UserPrefix + user + "/") }

// Wallet returns the account of a user's prepaid money.
func Wallet(user string) Account { return ownPrefix(user) + "wallet" }

// Quota returns the account for the quota of a subscription in the period that begins at start.
func Quota(user string, subscription int64, start time.Time) Account {
	var buffer [96]byte // few names are longer
	name := append(append(append(buffer[:0], UserPrefix...), user...), "/quota/"...)
	name = append(strconv.AppendInt(name, subscription, 10), '/')
	return Account(strconv.AppendInt(name, start.Unix(), 10))
}

// Receivable returns the account of what a user owes. It is negative after a refund or a dispute of
// money that was already spent.
func Receivable(user string) Account { return ownPrefix(user) + "receivable" }

// BudgetAccount returns the account that counts the spending under a budget in the period that
// begins at start, in Unix seconds.
func BudgetAccount(user, scope string, start int64) Account {
	return ownPrefix(user) + Account("budget/"+scope+"/"+strconv.FormatInt(start, 10))
}

// split returns the id of the user who owns the account, and its name without the user, such as
// "wallet". For a system account, owner is empty.
func (a Account) split() (owner, own string) {
	if rest, ok := strings.CutPrefix(string(a), UserPrefix); ok {
		if owner, own, ok = strings.Cut(rest, "/"); ok {
			return owner, own
		}
	}
	return owner, string(a)
}

// Owner returns the id of the user who owns the account; empty for a system account.
func (a Account) Owner() string {
	owner, _ := a.split()
	return owner
}

// Own returns the account's name without the user, such as "wallet".
func (a Account) Own() string {
	_, own := a.split()
	return own
}

// System reports whether the account is a system account. It has a state but no entries, because
// no view lists them. The legs of transfers are the only record of its changes.
func (a Account) System() bool { return strings.HasPrefix(string(a), "s/") }

// On returns the account for legs at time t: the account of that day for a system account, and
// any other account unchanged.
func (a Account) On(t time.Time) Account {
	if !a.System() {
		return a
	}
	return a + "/" + Account(DayOf(t))
}

// Family returns a system account without its day, and any other account unchanged.
func (a Account) Family() Account {
	if !a.System() {
		return a
	}
	return a[:strings.LastIndexByte(string(a), '/')]
}

// Memo reports whether the account only counts amounts and holds no money.
func (a Account) Memo() bool {
	owner, own := a.split()
	return owner != "" && strings.HasPrefix(own, "budget/")
}

// NonNegative reports whether the balance of the account never falls below zero. This is so for
// the wallet and the quotas of a user.
func (a Account) NonNegative() bool {
	owner, own := a.split()
	return owner != "" && (own == "wallet" || strings.HasPrefix(own, "quota/"))
}
