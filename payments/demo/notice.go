package demo

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
)

// The headers and the signature of a notice follow Standard Webhooks, except that the
// secret is not Base64.
const (
	idHeader        = "Webhook-Id"
	timeHeader      = "Webhook-Timestamp"
	signatureHeader = "Webhook-Signature"
	scheme          = "v1,"
)

// notice is the body of a notice.
type notice struct {
	ID   string        `json:"id"`
	Type payments.Kind `json:"type"`
	Data struct {
		TradeNo  string       `json:"trade_no"`
		Payment  string       `json:"payment"`
		Dispute  string       `json:"dispute,omitempty"`
		Amount   money.Amount `json:"amount"`
		Currency string       `json:"currency"`
	} `json:"data"`
}

// kinds are the kinds of notices.
var kinds = map[payments.Kind]bool{
	payments.Paid:     true,
	payments.Failed:   true,
	payments.Refunded: true,
	payments.Disputed: true,
	payments.Restored: true,
}

// paymentOf returns the service's id of the payment of an order.
func paymentOf(o payments.Order) string { return "pay_" + o.TradeNo }

// write returns a notice about the whole amount of an order. Its id depends only on the order and
// the kind. A button that is pressed twice repeats the notice, like a service that received no
// response.
func write(kind payments.Kind, o payments.Order) (id string, body []byte, err error) {
	n := notice{ID: string(kind) + "_" + o.TradeNo, Type: kind}
	n.Data.TradeNo = o.TradeNo
	n.Data.Payment = paymentOf(o)
	if kind == payments.Disputed || kind == payments.Restored {
		n.Data.Dispute = "dispute_" + o.TradeNo
	}
	n.Data.Amount = o.Amount
	n.Data.Currency = o.Currency
	body, err = json.Marshal(n)
	return n.ID, body, err
}

// signature returns the HMAC-SHA256 of a notice's id, time and body.
func (d *Demo) signature(id string, at time.Time, body []byte) []byte {
	mac := hmac.New(sha256.New, []byte(d.Secret.Reveal()))
	fmt.Fprintf(mac, "%s.%d.%s", id, at.Unix(), body)
	return mac.Sum(nil)
}

// sign sets the headers for id, time and signature.
func (d *Demo) sign(header http.Header, id string, at time.Time, body []byte) {
	header.Set(idHeader, id)
	header.Set(timeHeader, strconv.FormatInt(at.Unix(), 10))
	header.Set(signatureHeader, scheme+base64.StdEncoding.EncodeToString(d.signature(id, at, body)))
}

// verify checks a signature and its time, and returns the id that was signed.
func (d *Demo) verify(w payments.Webhook) (id string, err error) {
	if d.Secret == "" {
		return "", errors.New("no secret is configured")
	}
	var values [3]string
	for i, name := range []string{idHeader, timeHeader, signatureHeader} {
		given := w.Header.Values(name)
		if len(given) != 1 {
			return "", fmt.Errorf("the webhook has %d headers %s; allowed: 1", len(given), name)
		}
		values[i] = given[0]
	}
	id = values[0]
	if !payments.IsReference(id) {
		return "", errors.New(idHeader + " is not 1 to 255 printable characters")
	}
	// 40 bits are about 35,000 years, which time.Time can represent.
	seconds, err := strconv.ParseUint(values[1], 10, 40)
	if err != nil {
		return "", errors.New(timeHeader + " is not a time in Unix seconds")
	}
	at := time.Unix(int64(seconds), 0)
	if !w.Timely(at) {
		return "", fmt.Errorf("it was signed at %s", at.UTC().Format(time.RFC3339))
	}
	want := scheme + base64.StdEncoding.EncodeToString(d.signature(id, at, w.Body))
	if !hmac.Equal([]byte(values[2]), []byte(want)) {
		return "", errors.New("the signature was not made with the secret")
	}
	return id, nil
}

// Read implements payments.Provider.
func (d *Demo) Read(w payments.Webhook) (payments.Notice, error) {
	id, err := d.verify(w)
	if err != nil {
		return payments.Notice{}, fmt.Errorf("%w: %w", payments.ErrSignature, err)
	}
	var n notice
	if err := json.Unmarshal(w.Body, &n); err != nil {
		return payments.Notice{}, fmt.Errorf("the notice cannot be read: %w", err)
	}
	if n.ID != id {
		return payments.Notice{}, errors.New("the id of the notice differs from its header")
	}
	if !kinds[n.Type] {
		return payments.Notice{Kind: payments.Ignored, Event: id}, nil
	}
	switch disputed := n.Type == payments.Disputed || n.Type == payments.Restored; {
	case !payments.IsTradeNo(n.Data.TradeNo):
		return payments.Notice{}, errors.New("trade_no is not the number of an order")
	case !payments.IsReference(n.Data.Payment):
		return payments.Notice{}, errors.New("payment is not an id")
	case disputed != (n.Data.Dispute != ""), disputed && !payments.IsReference(n.Data.Dispute):
		return payments.Notice{}, errors.New("dispute is not an id, or is given without a dispute")
	case n.Data.Amount <= 0:
		return payments.Notice{}, errors.New("amount is not more than zero")
	case !isCurrency(n.Data.Currency):
		return payments.Notice{}, errors.New("currency is not three capital letters")
	}
	return payments.Notice{
		Kind:     n.Type,
		Event:    id,
		TradeNo:  n.Data.TradeNo,
		Payment:  n.Data.Payment,
		Dispute:  n.Data.Dispute,
		Amount:   n.Data.Amount,
		Currency: n.Data.Currency,
	}, nil
}

func isCurrency(code string) bool {
	return len(code) == 3 && strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
