package billing

import (
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
)

// AccountOf returns an account of a user by the name that people know it by:
// wallet, which the empty name is too; receivable, which is below zero by what
// he owes; or quota/<subscription>/<start>, a period of a subscription's quota
// by when it began, in Unix seconds. Another name is refused.
func AccountOf(user, name string) (ledger.Account, error) {
	switch name {
	case "", "wallet":
		return ledger.Wallet(user), nil
	case "receivable":
		return ledger.Receivable(user), nil
	}
	if rest, ok := strings.CutPrefix(name, "quota/"); ok {
		id, start, _ := strings.Cut(rest, "/")
		subscription, err := strconv.ParseInt(id, 10, 64)
		seconds, err2 := strconv.ParseInt(start, 10, 64)
		if err == nil && err2 == nil {
			return quotaAccount(user, subscription, seconds), nil
		}
	}
	return "", fault.At(fault.InvalidParameter, "account",
		"`account` is wallet, receivable or quota/<subscription_id>/<start of the period in Unix seconds>")
}
