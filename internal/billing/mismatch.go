package billing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// maxText bounds what is kept of a service's words.
const maxText = 255

// cut returns what is kept of a text: valid, so that it reads back as it was.
func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// mismatchOf is what is listed of a notice.
func mismatchOf(provider string, n payments.Notice, reason string) records.Mismatch {
	return records.Mismatch{
		Provider: provider, Kind: n.Kind, Event: cut(n.Event), TradeNo: cut(n.TradeNo), Payment: cut(n.Payment), Dispute: cut(n.Dispute),
		Amount: n.Amount, Currency: cut(n.Currency), Reason: cut(reason),
	}
}

// decline lists a notice that does not fit, once. One about a payment that is
// not known is kept until that comes.
func (a *application) decline(ctx context.Context, t storage.Txn, now time.Time, user, reason string) error {
	m := &records.MismatchRecord{Mismatch: mismatchOf(a.provider, a.notice, reason), By: a.attempt}
	m.Time = now.UnixMilli()
	before, err := records.Mismatches.Get(t, m.Digest())
	if err != nil || before != nil && before.By == a.attempt {
		return err // or an earlier run was committed
	}
	a.outcome, a.event = Outcome{Result: Mismatched, Reason: reason}, nil
	if before != nil {
		return nil
	}
	if err := records.Mismatches.Put(t, nil, m); err != nil {
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
func (a *application) awaited(t storage.Txn, now time.Time, o *records.OrderRecord) error {
	if o.Payment == "" {
		return nil
	}
	for m, err := range records.Mismatches.Scan(t, records.WaitingMismatches.Under(records.PaymentHash(o.Provider, o.Payment))) {
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
func (a *application) await(t storage.Txn, now time.Time, o *records.OrderRecord, m *records.MismatchRecord) error {
	n := payments.Notice{Kind: m.Kind, Event: m.Event, Payment: m.Payment, Dispute: m.Dispute, Amount: m.Amount, Currency: m.Currency}
	applied, err := records.Notices.Has(t, a.provider, string(n.Kind), n.Event)
	if err != nil || applied || n.Currency != o.Currency {
		return err // what was applied under its id meanwhile was about another payment
	}
	o.Note(n)
	if err := follow(t, now, o, n.Kind, o.Amount-o.TakenWallet); err != nil {
		return err
	}
	return errors.Join(records.Notices.Put(t, nil, a.record(n, now, o)), records.Mismatches.Put(t, m, nil))
}

// Mismatches returns the notices that fitted no order, the latest first, at most
// limit of them.
func (b *Service) Mismatches(ctx context.Context, limit int64) ([]records.Mismatch, error) {
	listed := []records.Mismatch{}
	kept := records.LatestMismatches.Under().Before(storage.Inverted(b.store.Now().Add(-records.MismatchesKept).UnixMilli()))
	err := b.view(ctx, func(r storage.Reader) error {
		found, _, err := records.Mismatches.Page(r, kept, 0, limit, limit)
		for _, m := range found {
			listed = append(listed, m.Mismatch)
		}
		return err
	})
	return listed, err
}
