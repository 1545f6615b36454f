package records

import (
	"cmp"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Preference is the order in which a user wants calls and tasks to be paid.
type Preference string

// The preferences. Subscriptions are spent soonest to end first.
const (
	SubscriptionFirst Preference = "subscription_first" // the default
	WalletFirst       Preference = "wallet_first"
	SubscriptionOnly  Preference = "subscription_only"
	WalletOnly        Preference = "wallet_only"
)

// AccountRecord is the record of a user.
type AccountRecord struct {
	User       string     `json:"user"`
	Preference Preference `json:"preference,omitempty"`

	// WrittenOff is what the user owed after disputes and refunds and the operator has borne. If a
	// dispute gives money back, that part goes to the operator.
	WrittenOff money.Amount `json:"written_off,omitempty"`
}

// Preferred returns the preference of the user, or the default.
func (a *AccountRecord) Preferred() Preference {
	return cmp.Or(a.Preference, SubscriptionFirst)
}

// ReadAccount returns the record of a user, an empty one if there is none.
func ReadAccount(r storage.Reader, user string) (*AccountRecord, error) {
	a, err := Accounts.GetOrZero(r, user)
	if err == nil {
		a.User = user
	}
	return a, err
}
