package console_test

import (
	"crypto/hmac"
	"crypto/md5"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestAnOrderOfAnotherCurrencyIsNotCredited: an order is opened, the operator changes
// the currency, which is allowed while no money has moved, and the order is paid. The
// configuration is refused if a service keeps the old currency.
func TestAnOrderOfAnotherCurrencyIsNotCredited(t *testing.T) {
	stripe := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"id":"cs_test_1","object":"checkout.session","url":"https://pay.example/cs_test_1"}`)
	}))
	t.Cleanup(stripe.Close)
	services := strings.NewReplacer("payment demo", `payment stripe {
		secret_key sk_test_of_nobody
		webhook_secret whsec_of_nobody
		api_url `+stripe.URL+`
	}
	payment epay {
		url https://pay.example
		pid 1001
		key hush
		currency EPAY
	}
	currency CURRENCY`)
	in := func(currency, epay string) gatetest.Config {
		text := services.Replace(app)
		return gatetest.Config{App: strings.NewReplacer("CURRENCY", currency, "EPAY", epay).Replace(text), Site: site}
	}
	for name, c := range map[string]struct {
		provider string
		epay     string // the currency of the service afterwards
		paid     func(t *testing.T, g *gatetest.Gate, tradeNo string) gatetest.Answer
	}{
		"stripe":                           {"stripe", "USD", paidByStripe},
		"epay, whose currency was changed": {"epay", "USD", paidByEpay},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatetest.Start(t, in("CNY", "CNY"))
			a := newAccount(t, g)
			o := post[order](t, a, "/api/user/"+c.provider+"/pay", `{"amount":"12.50"}`)
			if o.Currency != "CNY" {
				t.Fatalf("the order is %+v", o)
			}
			if err := g.Reload(in("USD", "CNY")); err == nil || !strings.Contains(err.Error(), "payment epay: the currency of the gateway: the service takes CNY, not USD") {
				t.Fatalf("a service with the old currency: %v", err)
			}
			if err := g.Reload(in("USD", c.epay)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if got := c.paid(t, g, o.TradeNo); got.Status != http.StatusOK {
					t.Fatalf("the notice is answered %d %s", got.Status, got.Body)
				}
				if balance := a.balance(t); balance != "0.00" {
					t.Errorf("the balance is %s USD", balance)
				}
			}
			got := get[order](t, a, "/api/user/topup/"+o.TradeNo)
			if got.Status != "review" || got.Currency != "CNY" {
				t.Errorf("the order is %+v", got)
			}
			var listed struct {
				Items []struct {
					TradeNo string `json:"trade_no"`
					Reason  string
				}
			}
			g.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &listed)
			if len(listed.Items) != 1 || listed.Items[0].TradeNo != o.TradeNo || !strings.Contains(listed.Items[0].Reason, "the order is in CNY, and the money here in USD") {
				t.Errorf("listed are %+v", listed.Items)
			}
			g.Verify(t)

			// After the currency is changed back, a repeated notice credits the order.
			if err := g.Reload(in("CNY", "CNY")); err != nil {
				t.Fatal(err)
			}
			c.paid(t, g, o.TradeNo)
			if got := get[order](t, a, "/api/user/topup/"+o.TradeNo); got.Status != "paid" || a.balance(t) != "12.50" {
				t.Errorf("the order is %+v, the balance %s", got, a.balance(t))
			}
			g.Verify(t)
		})
	}
}

// paidByEpay sends the notice of a payment of 12.50.
func paidByEpay(t *testing.T, g *gatetest.Gate, tradeNo string) gatetest.Answer {
	t.Helper()
	params := "money=12.50&name=x&out_trade_no=" + tradeNo + "&pid=1001&trade_no=77&trade_status=TRADE_SUCCESS&type=alipay"
	sign := fmt.Sprintf("%x", md5.Sum([]byte(params+"hush")))
	return g.Do(t, http.MethodGet, "/api/user/epay/webhook?"+params+"&sign_type=MD5&sign="+sign, "", "")
}

// paidByStripe sends the event of a payment of 12.50 CNY.
func paidByStripe(t *testing.T, g *gatetest.Gate, tradeNo string) gatetest.Answer {
	t.Helper()
	body := fmt.Sprintf(`{"id":"evt_1","object":"event","type":"checkout.session.completed","livemode":false,"data":{"object":`+
		`{"payment_status":"paid","client_reference_id":%q,"amount_total":1250,"currency":"cny","payment_intent":"pi_1","metadata":{"trade_no":%[1]q}}}}`, tradeNo)
	now := time.Now().Unix()
	mac := hmac.New(sha256.New, []byte("whsec_of_nobody"))
	fmt.Fprintf(mac, "%d.%s", now, body)
	return g.Do(t, http.MethodPost, "/api/user/stripe/webhook",
		fmt.Sprintf("Content-Type: application/json\nStripe-Signature: t=%d,v1=%x", now, mac.Sum(nil)), body)
}
