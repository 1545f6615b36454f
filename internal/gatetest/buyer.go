package gatetest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Selling configures plans, top-ups, and a payment service that accepts the notices of
// [Buyer.Notify].
const Selling = `
	payment demo {
		secret "a secret of the tests"
	}
	topup {
		min 0.01
		max 500.00
	}
	plan 1 Monthly {
		price 0.50
		quota 0.75
		duration 1 month
	}
	plan 2 Daily {
		price 0.50
		quota 0.75
		duration 1 month
		quota_reset day
	}
	plan 3 Short {
		price 0.50
		quota 0.75
		duration 1 day
	}
`

// Console is the console of a site, with high rate limits.
const Console = `
	modelgate_console {
		reads_per_minute    100000
		writes_per_minute   100000
		webhooks_per_minute 100000
	}
`

// Buyer is a user with an API key and an access token.
type Buyer struct {
	Key
	g    *Gate
	auth string
}

// NewBuyer creates a user with a key, as [Gate.NewKey] does, and an access token.
func (g *Gate) NewBuyer(t testing.TB, scope map[string]any) Buyer {
	t.Helper()
	b := Buyer{g.NewKey(t, scope), g, ""}
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+b.UserID+"/token", nil, &minted)
	b.auth = "Authorization: Bearer " + minted.Token + "\nContent-Type: application/json"
	return b
}

// Request sends a request to the console that must succeed.
func (b Buyer) Request(t testing.TB, method, path, body string) (data struct {
	TradeNo        string `json:"trade_no"`
	SubscriptionID int64  `json:"subscription_id"`
}) {
	t.Helper()
	got := b.g.Do(t, method, path, b.auth, body)
	var e struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(got.Body), &e); err != nil || got.Status != http.StatusOK {
		t.Fatalf("%s %s: %d %s", method, path, got.Status, got.Body)
	}
	_ = json.Unmarshal(e.Data, &data)
	return data
}

// TopUp creates and pays an order, and returns its number.
func (b Buyer) TopUp(t testing.TB, amount string) (order string) {
	t.Helper()
	order = b.Request(t, http.MethodPost, "/api/user/demo/pay", fmt.Sprintf(`{"amount":%q}`, amount)).TradeNo
	b.Notify(t, "paid", order, amount)
	return order
}

// Notify sends a notice of the payment service about an order. The kind, the order and the
// amount identify the event.
func (b Buyer) Notify(t testing.TB, kind, order, amount string) {
	t.Helper()
	id := kind + amount + order
	body := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"trade_no":%q,"payment":"pay_%s","dispute":"dispute_%s","amount":%q,"currency":"USD"}}`, id, kind, order, order, order, amount)
	if kind != "disputed" && kind != "restored" {
		body = strings.Replace(body, `"dispute":"dispute_`+order+`",`, "", 1)
	}
	now := b.g.Now().Unix()
	mac := hmac.New(sha256.New, []byte("a secret of the tests"))
	fmt.Fprintf(mac, "%s.%d.%s", id, now, body)
	headers := fmt.Sprintf("Content-Type: application/json\nWebhook-Id: %s\nWebhook-Timestamp: %d\nWebhook-Signature: v1,%s", id, now, base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	if got := b.g.Do(t, http.MethodPost, "/api/user/demo/webhook", headers, body); got.Status != http.StatusOK {
		t.Fatalf("%s: answered %d %s", kind, got.Status, got.Body)
	}
}

// Buy buys a plan from the wallet.
func (b Buyer) Buy(t testing.TB, plan int) (subscription int64) {
	t.Helper()
	return b.Request(t, http.MethodPost, "/api/subscription/wallet/pay", fmt.Sprintf(`{"plan_id":%d,"idempotency_key":"%d"}`, plan, b.g.Now().UnixNano())).SubscriptionID
}
