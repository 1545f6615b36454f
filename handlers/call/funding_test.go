package call_test

import (
	"net/http"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// callForms are forms of a call during which something changes. The backend sends the
// first part of its answer before the change, and the rest after it.
var callForms = map[string]struct {
	path, more  string
	first, rest http.HandlerFunc
	cost        money.Amount
	ended       string
}{
	"a whole call":          {messages, "", portions(), gatetest.JSON(200, messageAnswer), 49, "complete"},
	"a stream":              {messages, streamed, portions(), gatetest.Stream(messageEvents...), 175, "complete"},
	"a stream with content": {messages, streamed, gatetest.Stream(messageEvents[:4]...), portions(messageEvents[4:]...), 175, "complete"},
	"a chat":                {chat, streamed, gatetest.Stream(chatChunks[:2]...), portions(chatChunks[2], usageChunk, doneChunk), 27, "complete"},
	"a broken stream":       {messages, streamed, gatetest.Stream(messageEvents[:4]...), gatetest.Reset, 55, "upstream_error"},
	"a refused call":        {messages, "", portions(), gatetest.JSON(400, `{"type":"error","error":{}}`), 0, "refused"},
}

// TestARefundDuringACallDoesNotChangeItsCharge refunds and disputes the payment
// that funds a running call.
func TestARefundDuringACallDoesNotChangeItsCharge(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "base_url http://127.0.0.1:PORT\n" + prices + gatetest.Selling, Site: gatetest.Proxied + gatetest.Console})
	for name, c := range map[string]struct {
		meanwhile func(t *testing.T, b gatetest.Buyer, order string)
		refunded  money.Amount // of the 1.00 that was paid
		spends    bool         // the user may spend the rest
	}{
		"a refund":         {func(t *testing.T, b gatetest.Buyer, order string) { b.Notify(t, "refunded", order, "1.00") }, money.Unit, false},
		"a refund of half": {func(t *testing.T, b gatetest.Buyer, order string) { b.Notify(t, "refunded", order, "0.50") }, money.Unit / 2, true},
		"two refunds": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "0.40")
			b.Notify(t, "refunded", order, "1.00")
			b.Notify(t, "refunded", order, "1.00")
		}, money.Unit, false},
		"a dispute": {func(t *testing.T, b gatetest.Buyer, order string) { b.Notify(t, "disputed", order, "1.00") }, money.Unit, false},
		"a dispute that is won": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "disputed", order, "1.00")
			b.Notify(t, "restored", order, "1.00")
		}, 0, true},
		"a refund and a dispute": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "1.00")
			b.Notify(t, "disputed", order, "1.00")
		}, money.Unit, false},
		"a refund that is cleared": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "1.00")
			g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+b.UserID+"/clear", map[string]any{"reason": "a test"}, nil)
		}, -1, true}, // the rest is available
		"a refund and another payment": {func(t *testing.T, b gatetest.Buyer, order string) {
			b.Notify(t, "refunded", order, "1.00")
			b.TopUp(t, "1.00")
		}, 0, false},
	} {
		for form, w := range callForms {
			t.Run(name+" "+form, func(t *testing.T) {
				b := g.NewBuyer(t, nil)
				order := b.TopUp(t, "1.00")
				model := modelName("priced " + t.Name())
				var reserved money.Amount
				got := underWay(t, g, b.Key, w.path, model, w.more, w.first, w.rest, func() {
					reserved = g.Wallet(t, b.UserID).Reserved
					c.meanwhile(t, b, order)
				})
				if line := g.CallLine(t, got.RequestID()); line.Text("cost") != w.cost.String() || line.Text("ended") != w.ended || line.Text("uncollected") != "" {
					t.Errorf("logged %v, want %v", line, w.cost)
				}
				rest := g.WalletAtRest(t, b.UserID)
				want := money.Unit - c.refunded - w.cost
				if c.refunded < 0 {
					want = reserved - w.cost
				}
				if rest.Balance-rest.Owed != want || (rest.Owed == 0) != c.spends {
					t.Errorf("the balance is %v, and %v is owed; want a difference of %v", rest.Balance, rest.Owed, want)
				}
				g.Backend.On(model, gatetest.JSON(200, messageAnswer))
				next := post(t, g, messages, b.Secret, model, "")
				if paused := next.Status == http.StatusPaymentRequired; paused == c.spends && rest.Balance > 1000 {
					t.Errorf("the next call: answered %d %s", next.Status, next.Body)
				}
			})
		}
	}
	g.Verify(t)
}
