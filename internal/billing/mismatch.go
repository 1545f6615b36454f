package billing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// mismatchesKept is how long mismatches are listed, and how long a notice waits
// for its payment.
const mismatchesKept = audit.Kept

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

// mismatchRecord is a mismatch as it is stored.
type mismatchRecord struct {
	Mismatch
	By journal.ID `json:"by"` // the attempt that listed it
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
	return journal.IDOf(m.Provider, string(m.Kind), m.Event, m.TradeNo, m.Payment, m.Dispute, m.Amount.String(), m.Currency, m.Reason).String()
}

// decline lists a notice that does not fit, once. One about a payment that is
// not known is kept until that comes.
func (a *application) decline(ctx context.Context, t storage.Txn, now time.Time, user, reason string) error {
	m := &mismatchRecord{mismatchOf(a.provider, a.notice, reason), a.attempt}
	m.Time = now.UnixMilli()
	before, err := mismatches.Get(t, m.digest())
	if err != nil || before != nil && before.By == a.attempt {
		return err // or an earlier run was committed
	}
	a.outcome, a.event = Outcome{Result: Mismatched, Reason: reason}, nil
	if before != nil {
		return nil
	}
	if err := mismatches.Put(t, nil, m); err != nil {
		return err
	}
	a.event = &audit.Event{
		Actor: a.provider, Action: "topup.mismatch", User: user,
		Detail: detail(string(m.Kind), m.Event, m.TradeNo, amountOf(m.Amount, m.Currency), m.Reason),
	}
	return audit.Record(ctx, t, now, a.event)
}

// awaited applies what was told of a payment before the payment itself, in the
// order in which it came.
func (a *application) awaited(t storage.Txn, now time.Time, o *orderRecord) error {
	if o.Payment == "" {
		return nil
	}
	for m, err := range mismatches.Scan(t, waitingMismatches.Under(paymentHash(o.Provider, o.Payment))) {
		if err == nil {
			err = a.await(t, now, o, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// await applies one mismatch and deletes it. If it does not fit the order either, it stays listed.
func (a *application) await(t storage.Txn, now time.Time, o *orderRecord, m *mismatchRecord) error {
	n := payments.Notice{Kind: m.Kind, Event: m.Event, Payment: m.Payment, Dispute: m.Dispute, Amount: m.Amount, Currency: m.Currency}
	applied, err := notices.Has(t, a.provider, string(n.Kind), n.Event)
	if err != nil || applied || n.Currency != o.Currency {
		return err // what was applied under its id meanwhile was about another payment
	}
	o.note(n)
	if err := o.follow(t, now, n.Kind, o.Amount-o.TakenWallet); err != nil {
		return err
	}
	return errors.Join(notices.Put(t, nil, a.record(n, now, o)), mismatches.Put(t, m, nil))
}

// Mismatches returns the notices that fitted no order, the latest first, at most
// limit of them.
func (b *Service) Mismatches(ctx context.Context, limit int) ([]Mismatch, error) {
	listed := []Mismatch{}
	kept := latestMismatches.Under().Before(storage.Inverted(b.store.Now().Add(-mismatchesKept).UnixMilli()))
	err := b.view(ctx, func(r storage.Reader) error {
		found, _, err := mismatches.Page(r, kept, 0, int64(limit), int64(limit))
		for _, m := range found {
			listed = append(listed, m.Mismatch)
		}
		return err
	})
	return listed, err
}
