package epay

import (
	"errors"
	"net/url"
	"testing"

	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/payments/paymentstest"
)

// TestAPaymentURLIsNotANotice sends the parameters of a payment URL as a notice. The URL is signed
// with the same key as notices.
func TestAPaymentURLIsNotANotice(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	page, err := e.Checkout(t.Context(), paymentstest.Order(e.Currency))
	if err != nil {
		t.Fatal(err)
	}
	address, err := url.Parse(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	for what, replay := range map[string]payments.Webhook{"GET": get(address.Query()), "POST": post(address.RawQuery)} {
		if n, err := e.Read(replay); !errors.Is(err, payments.ErrSignature) {
			t.Errorf("%s: %+v, %v", what, n, err)
		}
	}
}
