package pages

import (
	"crypto/rand"
	"fmt"
	"html/template"
	"regexp"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

var (
	oneSubscription = load{"subscription", "/api/subscription/self/{subscription_id}", ""}
	// latestSubscription tells a user without a running plan that it has ended.
	latestSubscription = load{"subscriptions", "/api/subscription/self/?page_size=1", ""}
	orderList          = load{"orders", "/api/user/topup/self/", "p"}
)

// walletPages are about plans, money and payments. The forms that cost something have an
// idempotency key, which the template draws: however often a browser sends such a form, it is
// charged once.
var walletPages = []page{
	{path: "/wallet", name: "wallet", nav: true, loads: []load{
		{"topup", "/api/user/topup/info", ""},
		{"plans", "/api/subscription/plans/?page_size=100", ""},
		{"orders", "/api/user/topup/self/?page_size=5", ""},
		latestSubscription,
	}, actions: map[string]*action{
		"topup":      do("POST", "/api/user/{provider}/pay", "amount idempotency_key", ""),
		"preference": do("PUT", "/api/subscription/self/preference", "preference", after("/wallet", "preference")),
	}},
	{path: "/plans/{plan_id}", name: "plan", section: "wallet", loads: []load{{"plan", "/api/subscription/plans/{plan_id}", ""}}, actions: map[string]*action{
		"buy":   do("POST", "/api/subscription/wallet/pay", "plan_id:int price:amount idempotency_key", after("/wallet", "bought")).reviewedInPlace(),
		"claim": do("POST", "/api/subscription/free/pay", "plan_id:int", after("/wallet", "claimed")),
	}},
	{path: "/subscriptions", name: "subscriptions", section: "wallet", loads: []load{{"subscriptions", "/api/subscription/self/", "p"}}},
	{path: "/subscriptions/{subscription_id}", name: "subscription", section: "wallet", loads: []load{oneSubscription}},
	{path: "/subscriptions/{subscription_id}/renew", name: "renew", section: "wallet", loads: []load{oneSubscription}, actions: map[string]*action{
		"renew": do("POST", "/api/subscription/wallet/renew", "subscription_id:int price:amount idempotency_key", after("/wallet", "renewed")).reviewedInPlace(),
	}},
	{path: "/orders", name: "orders", section: "wallet", loads: []load{orderList}},
	{path: "/orders/{trade_no}", name: "order", section: "wallet", loads: []load{{"order", "/api/user/topup/{trade_no}", ""}}, unfinished: pendingOrder},
	{path: "/ledger", name: "ledger", section: "wallet", loads: []load{{"ledger", "/api/user/ledger/", "account p"}}},
}

// reviewedInPlace returns the action as one whose page shows what it will do.
func (a *action) reviewedInPlace() *action {
	a.inPlace = true
	return a
}

// drawnKey matches a key that a template has drawn.
var drawnKey = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// payKey returns the idempotency key of the form of a page. A form that was sent keeps its key,
// because its outcome may be unknown, unless the key was used for something else. The link to a page
// with such a form has its key, so that the page has the same one again after a reload and the back
// button.
func payKey(v *View) string {
	key := v.Form.Get("once")
	if v.Form.Has("do") {
		key = v.Form.Get("idempotency_key")
	}
	if v.Fault != nil && v.Fault.Code == "IDEMPOTENCY_KEY_REUSED" || !drawnKey.MatchString(key) {
		return rand.Text()
	}
	return key
}

// pendingOrder reports whether an order waits for its payment.
func pendingOrder(data map[string]any) bool {
	return get[string](data, "order", "status") == "pending"
}

// cannotPay returns the name of the message that says why calls of a user are refused: no source that
// the preference of the user allows has money; empty if one has.
func cannotPay(v *View) string {
	running, _ := v.Self["subscriptions"].([]any)
	empty := amountOf(v.Self["balance"]) <= amountOf(v.Self["held"])
	switch v.Self["preference"] {
	case "subscription_only":
		if len(running) == 0 {
			return "plans_only"
		}
	case "wallet_only":
		if empty {
			return "wallet_only"
		}
	default:
		if empty && len(running) == 0 {
			return "empty"
		}
	}
	return ""
}

// endedPlan returns the first subscription of a list, the latest, if its time is over; nil if not.
func endedPlan(list map[string]any) map[string]any {
	items, _ := list["items"].([]any)
	if len(items) == 0 {
		return nil
	}
	if latest := get[map[string]any](items[0]); latest["status"] == "expired" {
		return latest
	}
	return nil
}

// walletFunctions are those of the templates of these pages.
var walletFunctions = template.FuncMap{
	"cannot_pay":    cannotPay,
	"ended_plan":    endedPlan,
	"new_key":       rand.Text,
	"pay_key":       payKey,
	"below":         func(a, b any) bool { return amountOf(a) < amountOf(b) },
	"subtract":      func(a, b any) string { return (amountOf(a) - amountOf(b)).String() },
	"to_cents":      toCents,
	"signed_amount": signedAmount,
	"used_percent":  usedPercent,
	"first_of":      func(n int, all []any) []any { return all[:min(n, len(all))] },
	"without":       strings.TrimPrefix,
	"payment_orders": func() []string {
		return []string{"subscription_first", "wallet_first", "subscription_only", "wallet_only"}
	},
}

// amountOf returns an amount of the API; 0 if value is none.
func amountOf(value any) money.Amount {
	a, _ := money.Parse(fmt.Sprint(value))
	return a
}

// toCents rounds an amount up to two decimal places, because payment services take no smaller part.
func toCents(value any) string {
	const cent = money.Unit / 100
	return ((amountOf(value) + cent - 1) / cent * cent).String()
}

// signedAmount writes the change of a balance.
func signedAmount(value any) string {
	if amountOf(value) > 0 {
		return "+" + number(value)
	}
	return number(value)
}

// usedPercent returns how much of whole is used, from 0 to 100.
func usedPercent(used, whole any) int64 {
	return min(int64(100*float64(amountOf(used))/float64(max(amountOf(whole), 1))), 100)
}
