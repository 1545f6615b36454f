package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// payment is an operation that moves money once, however often it is repeated with its
// idempotency key. It is a purchase, a renewal, a top-up or an operator's credit.
type payment struct {
	kind string // kind of its ledger entry
	do   func() (receipt, error)

	mu           sync.Mutex
	firstAttempt time.Time     // time of the first attempt
	receipt      receipt       // the first acknowledged answer
	took         time.Duration // from the first attempt to that answer
	span         span          // the prices that may apply
}

// receipt is the answer to a payment: its ledger entry.
type receipt struct {
	reference string // the transfer, or what it refers to; empty if nothing was acknowledged
	amount    nano
}

// attempt performs the payment, possibly again. Each answer must be the same.
func (d *payment) attempt() error {
	d.mu.Lock()
	if d.firstAttempt.IsZero() {
		d.firstAttempt = time.Now()
	}
	d.mu.Unlock()
	now, err := d.do()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.receipt.reference == "" {
		d.receipt, d.took = now, time.Since(d.firstAttempt)
	}
	if d.receipt != now {
		return &refusal{http.StatusOK, fmt.Sprintf("a %s returned %+v, its repetition %+v", d.kind, d.receipt, now)}
	}
	return nil
}

// attemptTwice makes two attempts at the same time.
func (d *payment) attemptTwice() error {
	var other error
	var twin sync.WaitGroup
	twin.Go(func() { other = d.attempt() })
	err := d.attempt()
	twin.Wait()
	return errors.Join(err, other)
}

// Prices and secrets of the tests.
const (
	planPrice  = unit / 2
	demoSecret = "a secret of these tests"
)

// salesOptions returns the options of a gateway that sells the plan at a price.
func salesOptions(price nano) string {
	return fmt.Sprintf(`
		plan 1 Starter {
			price %v
			quota 0.002
			duration 1 day
		}
		payment demo {
			secret %q
		}
	`, price, demoSecret)
}

// bought is the console's answer to a purchase or a renewal.
type bought struct {
	Order        string `json:"order"`
	Subscription int64  `json:"subscription_id"`
	Wallet       struct {
		Charged nano `json:"charged"`
	} `json:"wallet"`
}

// purchase buys the plan and calls sold with the subscription.
func (c *gatewayUser) purchase(key string, sold func(int64)) *payment {
	return &payment{kind: "purchase", do: func() (receipt, error) {
		var b bought
		err := c.tryConsole(http.MethodPost, "/api/subscription/wallet/pay", map[string]any{"plan_id": 1, "idempotency_key": key}, &b)
		if err == nil {
			sold(b.Subscription)
		}
		return receipt{b.Order, -b.Wallet.Charged}, err
	}}
}

func (c *gatewayUser) renewal(key string, subscription int64) *payment {
	return &payment{kind: "renewal", do: func() (receipt, error) {
		var b bought
		err := c.tryConsole(http.MethodPost, "/api/subscription/wallet/renew", map[string]any{"subscription_id": subscription, "idempotency_key": key}, &b)
		return receipt{b.Order, -b.Wallet.Charged}, err
	}}
}

func (c *gatewayUser) operatorCredit(key string, amount nano) *payment {
	return &payment{kind: "credit", do: func() (receipt, error) {
		var done change
		err := c.g.tryPost("/modelgate/wallets/"+c.name+"/credit", map[string]any{"amount": amount.String(), "reason": "a test", "idempotency_key": key}, &done)
		return receipt{done.Order, amount}, err
	}}
}

// topUp creates an order and pays it. It uses the page of the demo service, which then sends
// its notice, or the test sends a notice instead.
func (c *gatewayUser) topUp(key string, amount nano, onPage bool) *payment {
	pay := c.notify
	if onPage {
		pay = c.payOnPage
	}
	return &payment{kind: "topup", do: func() (receipt, error) {
		var o order
		err := c.tryConsole(http.MethodPost, "/api/user/demo/pay", map[string]any{"amount": amount.String(), "idempotency_key": key}, &o)
		if err == nil {
			err = pay(o)
		}
		return receipt{o.TradeNo, amount}, err
	}}
}

// order is an unpaid order.
type order struct {
	TradeNo string `json:"trade_no"`
	Amount  string `json:"amount"`
	PayURL  string `json:"pay_url"`
}

func (c *gatewayUser) payOnPage(o order) error {
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodPost, o.PayURL, strings.NewReader("action=pay"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	err = c.expectOK(req)
	if no := new(refusal); errors.As(err, &no) && no.status == http.StatusBadGateway {
		err = errors.New("the payment service could not deliver its notice")
	}
	return err
}

// notify sends the demo service's notice that an order was paid.
func (c *gatewayUser) notify(o order) error {
	id := "paid_" + o.TradeNo
	body := fmt.Sprintf(`{"id":%q,"type":"paid","data":{"trade_no":%q,"payment":"pay_%s","amount":%q,"currency":"USD"}}`, id, o.TradeNo, o.TradeNo, o.Amount)
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(demoSecret))
	fmt.Fprintf(mac, "%s.%s.%s", id, now, body)
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodPost, c.g.url("/api/user/demo/webhook"), strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Webhook-Id", id)
	req.Header.Set("Webhook-Timestamp", now)
	req.Header.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return c.expectOK(req)
}

// expectOK sends a request, which must be answered with 200.
func (c *gatewayUser) expectOK(req *http.Request) error {
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = &refusal{resp.StatusCode, fmt.Sprintf("%s %s: %s: %s", req.Method, req.URL.Path, resp.Status, text)}
	}
	return err
}

// checkPayments checks that each acknowledged payment has one ledger entry. It
// returns the number of entries of all payments.
func (c *gatewayUser) checkPayments(lines []entry, payments []*payment) (all int) {
	c.g.t.Helper()
	byMark := map[string][]entry{}
	for _, line := range lines {
		if line.Kind == "calls" {
			continue
		}
		all++
		byMark[line.Transfer] = append(byMark[line.Transfer], line)
		if line.Kind == "topup" {
			byMark[line.Reference] = append(byMark[line.Reference], line)
		}
	}
	for _, d := range payments {
		if d.receipt.reference == "" {
			continue
		}
		if of := byMark[d.receipt.reference]; len(of) != 1 || of[0].Kind != d.kind || of[0].Amount != d.receipt.amount {
			c.g.t.Errorf("the %s %+v of %s has the lines %+v", d.kind, d.receipt, c.name, of)
		}
	}
	return all
}
