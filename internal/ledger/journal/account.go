package journal

import (
	"strconv"
	"strings"
	"time"
)

// Account is the name of an account. The accounts of a user begin with "u/<user id>/", so that
// they lie together in the store. System accounts begin with "s/".
type Account string

// The system accounts are the other side of what users have. A transfer enters them by the UTC
// day, as s/spent/20261120, so that no sum over the years leaves the range of an amount.
const (
	Spent    Account = "s/spent"    // what calls and tasks have cost
	Sold     Account = "s/sold"     // what was paid for plans
	Granted  Account = "s/granted"  // the quota that plans gave; below zero
	Operator Account = "s/operator" // what operators have credited and debited; below zero
)

// Paid is the account of a payment service: below zero by what it has taken from users.
func Paid(provider string) Account { return Account("s/paid/" + provider) }

// UserPrefix begins the accounts of users.
const UserPrefix = "u/"

func ownPrefix(user string) Account { return Account(UserPrefix + user + "/") }

// Wallet is a user's prepaid money.
func Wallet(user string) Account { return ownPrefix(user) + "wallet" }

// Quota is the quota of one period of a subscription.
func Quota(user string, subscription int64, start time.Time) Account {
	var room [96]byte // few are longer
	name := append(append(append(room[:0], UserPrefix...), user...), "/quota/"...)
	name = append(strconv.AppendInt(name, subscription, 10), '/')
	return Account(strconv.AppendInt(name, start.Unix(), 10))
}

// Receivable is the account of what a user owes. It is negative after a refund or a dispute of
// money that was already spent.
func Receivable(user string) Account { return ownPrefix(user) + "receivable" }

// BudgetAccount counts what was spent under a budget in the period that begins at start, in
// Unix seconds.
func BudgetAccount(user, scope string, start int64) Account {
	return ownPrefix(user) + Account("budget/"+scope+"/"+strconv.FormatInt(start, 10))
}

// split returns the user who owns the account, empty for a system account, and the account's
// name among those of the user: "wallet".
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

// Own returns the account's name among those of its user: "wallet".
func (a Account) Own() string {
	_, own := a.split()
	return own
}

// System reports whether it is a system account. A system account has a state but no entries,
// because no view lists them and a purchase changes two of these accounts. The legs of transfers
// are the only record of its changes.
func (a Account) System() bool { return strings.HasPrefix(string(a), "s/") }

// On returns the account for legs at time t: for a system account that of the day,
// for any other itself.
func (a Account) On(t time.Time) Account {
	if !a.System() {
		return a
	}
	return a + "/" + Account(DayOf(t))
}

// Family returns the system account without its day; any other account is returned as it is.
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

// Kept reports whether the account holds money of a user, which never falls below zero.
func (a Account) Kept() bool {
	owner, own := a.split()
	return owner != "" && (own == "wallet" || strings.HasPrefix(own, "quota/"))
}
