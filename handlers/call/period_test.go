package call_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// subscription is a subscription in the form that operators read.
type subscription struct {
	Status string       `json:"status"`
	Used   money.Amount `json:"quota_used"`
	Held   money.Amount `json:"quota_held"`
}

// subscriptionOf returns the only subscription of a buyer.
func subscriptionOf(t *testing.T, g *gatetest.Gate, b gatetest.Buyer) subscription {
	t.Helper()
	var list struct{ Items []subscription }
	g.MustAdmin(t, http.MethodGet, "/modelgate/subscriptions?user="+b.UserID, nil, &list)
	if len(list.Items) != 1 {
		t.Fatalf("the buyer has %d subscriptions, want 1", len(list.Items))
	}
	return list.Items[0]
}

// costOf returns the cost of a buyer's calls in the usage report of operators.
func costOf(t *testing.T, g *gatetest.Gate, b gatetest.Buyer) (sum money.Amount) {
	t.Helper()
	var list struct {
		Items []struct {
			Cost money.Amount `json:"cost"`
		}
	}
	g.MustAdmin(t, http.MethodGet, "/modelgate/usage?group=user&user="+b.UserID, nil, &list)
	for _, item := range list.Items {
		sum += item.Cost
	}
	return sum
}

// TestACallIsPaidFromThePeriodInWhichItBegan changes the subscription during a call.
func TestACallIsPaidFromThePeriodInWhichItBegan(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "base_url http://127.0.0.1:PORT\n" + prices + gatetest.Selling + `
		plan 4 Tiny {
			price 0.50
			quota 0.00000002
			duration 1 day
		}
	`, Site: gatetest.Proxied + gatetest.Console})
	another := func(t *testing.T, b gatetest.Buyer) money.Amount {
		g.Backend.On("priced other", gatetest.JSON(200, messageAnswer))
		if got := post(t, g, messages, b.Secret, "priced other", ""); got.Status != http.StatusOK {
			t.Errorf("the other call: answered %d %s", got.Status, got.Body)
		}
		return 49
	}
	for name, c := range map[string]struct {
		plan int
		// meanwhile makes the change and returns what it spent in addition to the call.
		meanwhile func(t *testing.T, b gatetest.Buyer, subscription int64) money.Amount
		// used returns the expected usage of the last quota. charged returns the expected charge
		// to the wallet. Both get the cost of the call.
		used, charged func(cost money.Amount) money.Amount
	}{
		"nothing changes": {1, func(*testing.T, gatetest.Buyer, int64) money.Amount { return 0 },
			func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 0 }},
		"the subscription ends": {3, func(*testing.T, gatetest.Buyer, int64) money.Amount { g.Wait(25 * time.Hour); return 0 },
			func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 0 }},
		"it ends, and another call begins": {3, func(t *testing.T, b gatetest.Buyer, _ int64) money.Amount {
			g.Wait(25 * time.Hour)
			return another(t, b)
		},
			func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 49 }},
		"the period ends": {2, func(*testing.T, gatetest.Buyer, int64) money.Amount { g.Wait(24 * time.Hour); return 0 },
			func(money.Amount) money.Amount { return 0 }, func(money.Amount) money.Amount { return 0 }},
		"the period ends, and another call begins": {2, func(t *testing.T, b gatetest.Buyer, _ int64) money.Amount {
			g.Wait(24 * time.Hour)
			return another(t, b)
		},
			func(money.Amount) money.Amount { return 49 }, func(money.Amount) money.Amount { return 0 }},
		"it is renewed": {1, func(t *testing.T, b gatetest.Buyer, id int64) money.Amount {
			g.Credit(t, b.UserID, "0.50")
			b.Request(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			return 0
		}, func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 0 }},
		"it ends and is renewed": {3, func(t *testing.T, b gatetest.Buyer, id int64) money.Amount {
			g.Wait(25 * time.Hour)
			g.Credit(t, b.UserID, "0.50")
			b.Request(t, http.MethodPost, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"r"}`, id))
			return another(t, b)
		}, func(money.Amount) money.Amount { return 49 }, func(money.Amount) money.Amount { return 0 }},
		"another is bought": {1, func(t *testing.T, b gatetest.Buyer, _ int64) money.Amount {
			g.Credit(t, b.UserID, "0.50")
			b.Buy(t, 3)
			return 0
		}, nil, func(money.Amount) money.Amount { return 0 }},
		"it is cancelled": {1, func(t *testing.T, b gatetest.Buyer, id int64) money.Amount {
			g.MustAdmin(t, http.MethodPost, fmt.Sprintf("/modelgate/subscriptions/%d/cancel", id), map[string]any{"reason": "a test"}, nil)
			return 0
		}, func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 0 }},
		"another preference": {1, func(t *testing.T, b gatetest.Buyer, _ int64) money.Amount {
			b.Request(t, http.MethodPut, "/api/subscription/self/preference", `{"preference":"wallet_only"}`)
			return 0
		}, func(c money.Amount) money.Amount { return c }, func(money.Amount) money.Amount { return 0 }},
		"a quota that does not suffice": {4, func(*testing.T, gatetest.Buyer, int64) money.Amount { g.Wait(25 * time.Hour); return 0 },
			func(c money.Amount) money.Amount { return min(c, 20) }, func(c money.Amount) money.Amount { return c - min(c, 20) }},
		"a quota that does not suffice is cancelled": {4, func(t *testing.T, b gatetest.Buyer, id int64) money.Amount {
			g.MustAdmin(t, http.MethodPost, fmt.Sprintf("/modelgate/subscriptions/%d/cancel", id), map[string]any{"reason": "a test"}, nil)
			return 0
		}, func(c money.Amount) money.Amount { return min(c, 20) }, func(c money.Amount) money.Amount { return c - min(c, 20) }},
	} {
		for form, w := range callForms {
			t.Run(name+" "+form, func(t *testing.T) {
				b := g.NewBuyer(t, nil)
				g.Credit(t, b.UserID, "1.50")
				id := b.Buy(t, c.plan)
				var other money.Amount
				got := underWay(t, g, b.Key, w.path, modelName("priced "+t.Name()), w.more, w.first, w.rest, func() { other = c.meanwhile(t, b, id) })
				if line := g.CallLine(t, got.RequestID()); line.Text("cost") != w.cost.String() || line.Text("uncollected") != "" {
					t.Errorf("logged %v, want %v", line, w.cost)
				}
				gatetest.Eventually(t, "the call is settled", func() (money.Amount, bool) {
					sum := costOf(t, g, b)
					return sum, sum == w.cost+other
				})
				wallet := g.WalletAtRest(t, b.UserID)
				g.Verify(t)
				if spent := money.Unit - wallet.Balance; spent != c.charged(w.cost) {
					t.Errorf("%v of the wallet was spent, want %v", spent, c.charged(w.cost))
				}
				if c.used != nil {
					if s := subscriptionOf(t, g, b); s.Used != c.used(w.cost) || s.Held != 0 {
						t.Errorf("the subscription is %+v, want %v used", s, c.used(w.cost))
					}
				}
			})
		}
	}
}
