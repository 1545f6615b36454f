package stripe

import (
	"crypto/hmac"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/caddy-modelgate/modelgate/payments"
)

// Limits of a Stripe-Signature header. Stripe sends one signature for each valid secret; while a
// secret is rotated, older ones are valid too.
const (
	maxSignatureHeader = 4 << 10
	maxSignatures      = 16
)

// CheckHead implements payments.HeadChecker. It rejects a webhook without a
// signature or outside of the time limits.
func (s *Stripe) CheckHead(w payments.Webhook) error {
	_, _, err := s.signatures(w)
	return err
}

// verify checks that a webhook was signed with the configured secret, within
// five minutes of now.
//
// It uses only the computation of the signature from Stripe's library. The check of the library
// accepts an empty secret and a time in the future, and uses the last of several times.
func (s *Stripe) verify(w payments.Webhook) error {
	at, signatures, err := s.signatures(w)
	if err != nil {
		return err
	}
	want := webhook.ComputeSignature(at, w.Body, s.WebhookSecret.Reveal())
	for _, signature := range signatures {
		if hmac.Equal(want, signature) {
			return nil
		}
	}
	return fmt.Errorf("%w: the signature was not made with webhook_secret", payments.ErrSignature)
}

// signatures returns the signatures in the header of a webhook, made within
// five minutes of now.
func (s *Stripe) signatures(w payments.Webhook) (at time.Time, signatures [][]byte, err error) {
	if s.WebhookSecret == "" {
		return at, nil, fmt.Errorf("%w: webhook_secret is missing", payments.ErrSignature)
	}
	values := w.Header.Values("Stripe-Signature")
	if len(values) != 1 {
		return at, nil, fmt.Errorf("%w: the webhook has %d headers Stripe-Signature; allowed: 1", payments.ErrSignature, len(values))
	}
	if at, signatures, err = parseSignature(values[0]); err != nil {
		return at, nil, fmt.Errorf("%w: %w", payments.ErrSignature, err)
	}
	if !w.Timely(at) {
		return at, nil, fmt.Errorf("%w: it was signed at %s", payments.ErrSignature, at.UTC().Format(time.RFC3339))
	}
	return at, signatures, nil
}

// parseSignature parses a header such as t=1800000000,v1=0af3…,v0=…: one time
// in Unix seconds, and at least one signature of version 1. Other names belong
// to unsupported versions.
func parseSignature(header string) (at time.Time, signatures [][]byte, err error) {
	if len(header) > maxSignatureHeader {
		return time.Time{}, nil, fmt.Errorf("the header is longer than %d bytes", maxSignatureHeader)
	}
	for part := range strings.SplitSeq(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "t":
			// 40 bits are about 35,000 years, which time.Time can represent.
			seconds, err := strconv.ParseUint(value, 10, 40)
			if err != nil {
				return time.Time{}, nil, fmt.Errorf("t is not a time in Unix seconds")
			}
			if !at.IsZero() {
				return time.Time{}, nil, fmt.Errorf("t is given twice")
			}
			at = time.Unix(int64(seconds), 0)
		case "v1":
			signature, err := hex.DecodeString(value)
			if err != nil || len(signatures) == maxSignatures {
				return time.Time{}, nil, fmt.Errorf("v1 is not hexadecimal, or is given more than %d times", maxSignatures)
			}
			signatures = append(signatures, signature)
		}
	}
	if at.IsZero() || len(signatures) == 0 {
		return time.Time{}, nil, fmt.Errorf("the header has no t or no v1")
	}
	return at, signatures, nil
}
