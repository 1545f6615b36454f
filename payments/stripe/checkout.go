package stripe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/caddy-modelgate/modelgate/payments"
)

// Limits of a call to Stripe. A response has a few KiB.
const (
	callTimeout  = 20 * time.Second // for both attempts together
	maxResponse  = 1 << 20
	maxErrorText = 1 << 10
)

// A session can be paid for 30 minutes to 24 hours. A margin of one minute
// allows for clock differences and network delays.
const (
	shortestSession = 31 * time.Minute
	longestSession  = 24*time.Hour - time.Minute
)

// tradeNoKey is the metadata key of the order.
const tradeNoKey = "trade_no"

// connect creates the client. It shares no settings with other users of
// Stripe's library in this process.
func (s *Stripe) connect() {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	s.http = &http.Client{
		Transport: bounded{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
	config := &stripe.BackendConfig{
		HTTPClient:        s.http,
		EnableTelemetry:   new(false),
		LeveledLogger:     &stripe.LeveledLogger{Level: stripe.LevelNull},
		MaxNetworkRetries: stripe.Int64(1),
	}
	if s.APIURL != "" {
		config.URL = stripe.String(s.APIURL)
	}
	s.client = stripe.NewClient(s.SecretKey.Reveal(), stripe.WithBackends(stripe.NewBackendsWithConfig(config)))
}

// Checkout implements payments.Provider: it opens a Checkout Session.
func (s *Stripe) Checkout(ctx context.Context, o payments.Order) (payments.Page, error) {
	params, err := s.session(o)
	if err != nil {
		return payments.Page{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	session, err := s.client.V1CheckoutSessions.Create(ctx, params)
	if err != nil {
		return payments.Page{}, fmt.Errorf("open a checkout session: %w", s.refusal(err))
	}
	page, err := url.Parse(session.URL)
	if err != nil || page.Scheme != "https" && page.Scheme != "http" || page.Host == "" {
		return payments.Page{}, errors.New("open a checkout session: Stripe's response has no page")
	}
	if !payments.IsReference(session.ID) {
		return payments.Page{}, errors.New("open a checkout session: Stripe's response has no id")
	}
	return payments.Page{URL: session.URL, Reference: session.ID}, nil
}

// session returns the parameters of a Checkout Session. They contain the order's number three
// times. It is there for the events of the session, in the metadata of the payment intent for the
// events of the charge, and as the idempotency key. So a repeated call opens no second session.
func (s *Stripe) session(o payments.Order) (*stripe.CheckoutSessionCreateParams, error) {
	amount, err := toMinor(o.Amount, o.Currency)
	if err != nil {
		return nil, err
	}
	order := map[string]string{tradeNoKey: o.TradeNo}
	params := &stripe.CheckoutSessionCreateParams{
		Mode:              stripe.String(string(stripe.CheckoutSessionModePayment)),
		ClientReferenceID: &o.TradeNo,
		Metadata:          order,
		PaymentIntentData: &stripe.CheckoutSessionCreatePaymentIntentDataParams{Metadata: order},
		SuccessURL:        &o.ReturnURL,
		CancelURL:         &o.ReturnURL,
		ExpiresAt:         new(s.expiry(o.Expires).Unix()),
		LineItems: []*stripe.CheckoutSessionCreateLineItemParams{{
			Quantity: stripe.Int64(1),
			PriceData: &stripe.CheckoutSessionCreateLineItemPriceDataParams{
				Currency:    stripe.String(strings.ToLower(o.Currency)),
				UnitAmount:  &amount,
				ProductData: &stripe.CheckoutSessionCreateLineItemPriceDataProductDataParams{Name: &o.Title},
			},
		}},
		// Payments, refunds and disputes must have the order's amount and
		// currency, not those of the payer's country.
		AdaptivePricing: &stripe.CheckoutSessionCreateAdaptivePricingParams{Enabled: new(false)},
	}
	params.SetIdempotencyKey(o.TradeNo)
	return params, nil
}

// expiry limits the end of an order to what Stripe accepts.
func (s *Stripe) expiry(end time.Time) time.Time {
	now := s.now()
	if earliest := now.Add(shortestSession); end.Before(earliest) {
		return earliest
	}
	if latest := now.Add(longestSession); end.After(latest) {
		return latest
	}
	return end
}

// refusal returns the error of a failed call. Stripe's text is for operators:
// it names parameters and settings of the account, never the payer.
func (s *Stripe) refusal(err error) error {
	if refused, ok := errors.AsType[*stripe.Error](err); ok {
		return errors.New(s.redacted(fmt.Sprintf("Stripe returned %d %s %s (request %s): %s",
			refused.HTTPStatusCode, refused.Type, refused.Code, refused.RequestID, refused.Msg)))
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed // a network error; it contains the URL but no header
	}
	return errors.New(s.redacted(err.Error()))
}

// bounded limits the length of responses.
type bounded struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.Transport.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxResponse), response.Body}
	return response, nil
}
