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

// A deed is something that moves money once, however often it is asked for with
// its key: a purchase, a renewal, a top-up, an operator's credit.
type deed struct {
	kind string // of its line in the ledger
	do   func() (moved, error)

	mu    sync.Mutex
	asked time.Time     // for the first time
	moved moved         // as it was acknowledged first
	took  time.Duration // until that
	span  span          // of the prices at which it may have been done
}

// moved is what the answer to a deed says of its line in the ledger.
type moved struct {
	mark   string // the transfer, or what it refers to; empty: nothing was acknowledged
	amount nano
}

// ask asks for the deed, once more or for the first time. Each answer must be
// of the same line.
func (d *deed) ask() error {
	d.mu.Lock()
	if d.asked.IsZero() {
		d.asked = time.Now()
	}
	d.mu.Unlock()
	now, err := d.do()
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.moved.mark == "" {
		d.moved, d.took = now, time.Since(d.asked)
	}
	if d.moved != now {
		return &refusal{http.StatusOK, fmt.Sprintf("a %s was answered as %+v, and asked for again as %+v", d.kind, d.moved, now)}
	}
	return nil
}

// askTwice asks for the deed twice at the same time.
func (d *deed) askTwice() error {
	var other error
	var twin sync.WaitGroup
	twin.Go(func() { other = d.ask() })
	err := d.ask()
	twin.Wait()
	return errors.Join(err, other)
}

// The shop of the tests, and how wallets are filled there.
const (
	planPrice  = unit / 2
	demoSecret = "a secret of these tests"
)

// shop sells the plan at a price.
func shop(price nano) string {
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

// bought is what the console answers to a purchase or a renewal.
type bought struct {
	Order        string `json:"order"`
	Subscription int64  `json:"subscription_id"`
	Wallet       struct {
		Charged nano `json:"charged"`
	} `json:"wallet"`
}

// purchase buys the plan; sold is told as which subscription.
func (c *customer) purchase(key string, sold func(int64)) *deed {
	return &deed{kind: "purchase", do: func() (moved, error) {
		var b bought
		err := c.ask(http.MethodPost, "/api/subscription/wallet/pay", map[string]any{"plan_id": 1, "idempotency_key": key}, &b)
		if err == nil {
			sold(b.Subscription)
		}
		return moved{b.Order, -b.Wallet.Charged}, err
	}}
}

func (c *customer) renewal(key string, subscription int64) *deed {
	return &deed{kind: "renewal", do: func() (moved, error) {
		var b bought
		err := c.ask(http.MethodPost, "/api/subscription/wallet/renew", map[string]any{"subscription_id": subscription, "idempotency_key": key}, &b)
		return moved{b.Order, -b.Wallet.Charged}, err
	}}
}

func (c *customer) gift(key string, amount nano) *deed {
	return &deed{kind: "credit", do: func() (moved, error) {
		var done change
		err := c.g.tryPost("/modelgate/wallets/"+c.name+"/credit", map[string]any{"amount": amount.String(), "reason": "a test", "idempotency_key": key}, &done)
		return moved{done.Order, amount}, err
	}}
}

// topUp opens an order and pays it: on the page of the service, which sends its
// notice then, or by a notice that the test sends in its place.
func (c *customer) topUp(key string, amount nano, onPage bool) *deed {
	pay := c.notify
	if onPage {
		pay = c.payOnPage
	}
	return &deed{kind: "topup", do: func() (moved, error) {
		var o order
		err := c.ask(http.MethodPost, "/api/user/demo/pay", map[string]any{"amount": amount.String(), "idempotency_key": key}, &o)
		if err == nil {
			err = pay(o)
		}
		return moved{o.TradeNo, amount}, err
	}}
}

// order is an order that is to be paid.
type order struct {
	TradeNo string `json:"trade_no"`
	Amount  string `json:"amount"`
	PayURL  string `json:"pay_url"`
}

func (c *customer) payOnPage(o order) error {
	req, err := http.NewRequestWithContext(c.g.t.Context(), http.MethodPost, o.PayURL, strings.NewReader("action=pay"))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	err = c.expectOK(req)
	if no := new(refusal); errors.As(err, &no) && no.status == http.StatusBadGateway {
		err = errors.New("the payment service could not deliver its notice, and will have to send it again")
	}
	return err
}

// notify sends the notice of the demo service that an order was paid.
func (c *customer) notify(o order) error {
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

// expectOK sends a request that must be answered 200.
func (c *customer) expectOK(req *http.Request) error {
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

// checkDeeds wants one line in the ledger for each deed that was acknowledged.
// It returns how many lines there are of deeds in all.
func (c *customer) checkDeeds(lines []entry, deeds []*deed) (all int) {
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
	for _, d := range deeds {
		if d.moved.mark == "" {
			continue
		}
		if of := byMark[d.moved.mark]; len(of) != 1 || of[0].Kind != d.kind || of[0].Amount != d.moved.amount {
			c.g.t.Errorf("the %s %+v of %s has the lines %+v", d.kind, d.moved, c.name, of)
		}
	}
	return all
}
