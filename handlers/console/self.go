package console

import (
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/money"
)

// self is what a user is told of his account.
type self struct {
	ID         string             `json:"id"`
	Name       string             `json:"name"`
	Currency   string             `json:"currency"`
	Balance    money.Amount       `json:"balance"` // of the wallet
	Held       money.Amount       `json:"held"`    // of the balance, what tasks hold and calls under way have reserved
	Owed       money.Amount       `json:"owed"`    // while it is more than zero, spending pauses
	Preference billing.Preference `json:"preference"`
}

func showSelf(v *visit) error {
	funds, err := v.node.Ledger.Funds(v.r.Context(), v.account.UserID)
	if err != nil {
		return err
	}
	preference, err := v.node.Billing.Preference(v.r.Context(), v.account.UserID)
	if err != nil {
		return err
	}
	return v.answer(self{
		ID: v.account.UserID, Name: v.account.UserName, Currency: v.console.app.Currency,
		Balance: funds.Wallet.Balance, Held: funds.Wallet.Held + funds.Reserved, Owed: funds.Owed,
		Preference: preference,
	})
}
