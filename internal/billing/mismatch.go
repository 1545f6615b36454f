package billing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// mismatchesKept is how long mismatches are listed, and how long a notice waits
// for its payment.
const mismatchesKept = identity.AuditKept

// Mismatch is a well-signed notice that fitted no order. It credited nothing.
type Mismatch struct {
	Time     int64         `json:"time"` // Unix milliseconds
	Provider string        `json:"provider"`
	Kind     payments.Kind `json:"kind"`
	Event    string        `json:"event,omitempty"`
	TradeNo  string        `json:"trade_no,omitempty"`
	Payment  string        `json:"payment,omitempty"`
	Dispute  string        `json:"dispute,omitempty"`
	Amount   money.Amount  `json:"amount,omitempty"`
	Currency string        `json:"currency,omitempty"`
	Reason   string        `json:"reason"`
}

// mismatchMark finds a mismatch that was listed.
type mismatchMark struct {
	Time int64     `json:"time"` // Unix milliseconds
	By   ledger.ID `json:"by"`   // the attempt that did it
}

// maxText bounds what is kept of a service's words.
const maxText = 255

// cut returns what is kept of a text: valid, so that it reads back as it was.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// mismatchOf is what is listed of a notice.
func mismatchOf(provider string, n payments.Notice, reason string) Mismatch {
	return Mismatch{
		Provider: provider, Kind: n.Kind, Event: cut(n.Event), TradeNo: cut(n.TradeNo), Payment: cut(n.Payment), Dispute: cut(n.Dispute),
		Amount: n.Amount, Currency: cut(n.Currency), Reason: cut(reason),
	}
}

// digest is one for all times that a service sends the same.
func (m Mismatch) digest() string {
	return ledger.IDOf(m.Provider, string(m.Kind), m.Event, m.TradeNo, m.Payment, m.Dispute, m.Amount.String(), m.Currency, m.Reason).String()
}

// decline lists a notice that does not fit, once. One about a payment that is
// not known is kept until that comes.
func (a *application) decline(ctx context.Context, t storage.Txn, now time.Time, user, reason string) error {
	m := mismatchOf(a.provider, a.notice, reason)
	m.Time = now.UnixMilli()
	digest := m.digest()
	var before mismatchMark
	found, err := storage.GetRecord(t, storage.Key(mismatchOfPrefix, digest), &before)
	if err != nil {
		return err
	}
	if found && before.By == a.attempt {
		return nil // a run before this one was committed
	}
	a.outcome, a.event = Outcome{Result: Mismatched, Reason: reason}, nil
	if found {
		return nil
	}
	purge := now.Add(mismatchesKept)
	mark := mismatchMark{m.Time, a.attempt}
	if err := t.Set(storage.Key(mismatchOfPrefix, digest), storage.EncodeRecord(mark), purge); err != nil {
		return err
	}
	if err := t.Set(storage.Key(mismatchPrefix, storage.Inverted(m.Time), digest), storage.EncodeRecord(m), purge); err != nil {
		return err
	}
	if _, follows := moveKinds[a.notice.Kind]; follows && reason == unknownPayment && a.notice.Payment != "" {
		key := storage.Key(waitingPrefix, paymentHash(a.provider, a.notice.Payment), m.Time, digest)
		if err := t.Set(key, storage.EncodeRecord(m), purge); err != nil {
			return err
		}
	}
	a.event = &identity.Event{
		Actor: a.provider, Action: "topup.mismatch", User: user,
		Detail: detail(string(m.Kind), m.Event, m.TradeNo, amountOf(m.Amount, m.Currency), m.Reason),
	}
	return identity.Record(ctx, t, now, a.event)
}

// paymentHash stands for a payment in keys where more follows.
func paymentHash(provider, payment string) string { return ledger.IDOf(provider, payment).String() }

// awaited applies what was told of a payment before the payment itself, in the
// order in which it came.
func (a *application) awaited(t storage.Txn, now time.Time, o *orderRecord) error {
	if o.Payment == "" {
		return nil
	}
	lo, hi := storage.Below(waitingPrefix, paymentHash(o.Provider, o.Payment))
	keys, err := keysBetween(t, lo, hi, 0)
	if err != nil {
		return err
	}
	for _, key := range keys {
		var m Mismatch
		if _, err := storage.GetRecord(t, key, &m); err != nil {
			return err
		}
		if err := errors.Join(t.Delete(key), a.await(t, now, o, m)); err != nil {
			return err
		}
	}
	return nil
}

// await applies one notice that was kept, and takes it off the list. One that
// does not fit the order either stays there.
func (a *application) await(t storage.Txn, now time.Time, o *orderRecord, m Mismatch) error {
	n := payments.Notice{Kind: m.Kind, Event: m.Event, Payment: m.Payment, Dispute: m.Dispute, Amount: m.Amount, Currency: m.Currency}
	key := storage.Key(eventPrefix, a.provider, string(n.Kind), n.Event)
	applied, err := t.Get(key)
	if err != nil || applied != nil || n.Currency != o.Currency {
		return err // what was applied under its id meanwhile was about another payment
	}
	o.note(n)
	if err := o.follow(t, now, n.Kind, o.Amount-o.TakenWallet); err != nil {
		return err
	}
	event := eventRecord{now.Unix(), o.TradeNo, a.attempt, said(n)}
	digest := m.digest()
	return errors.Join(
		storage.SetRecord(t, key, event),
		t.Delete(storage.Key(mismatchPrefix, storage.Inverted(m.Time), digest)),
		t.Delete(storage.Key(mismatchOfPrefix, digest)),
	)
}

// Mismatches returns the notices that fitted no order, the latest first, at most
// limit of them.
func (d *Desk) Mismatches(ctx context.Context, limit int) ([]Mismatch, error) {
	listed := []Mismatch{}
	if limit < 1 {
		return listed, nil
	}
	lo, _ := storage.Below(mismatchPrefix)
	hi := storage.Key(mismatchPrefix, storage.Inverted(d.store.Now().Add(-mismatchesKept).UnixMilli()))
	err := d.view(ctx, func(r storage.Reader) error {
		return scan(r, lo, hi, func(_ []byte, m Mismatch) bool {
			listed = append(listed, m)
			return len(listed) < limit
		})
	})
	return listed, err
}
