package billing

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/payments"
	"github.com/caddy-modelgate/modelgate/storage"
)

// maxText is the maximum length of a service's text that is stored, in bytes.
const maxText = 255

// cut returns the part of a text that is stored. It is valid UTF-8, which JSON does not change.
func truncate(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// mismatchOf returns the mismatch for a notice.
func mismatchOf(provider string, n payments.Notice, reason string) records.Mismatch {
	return records.Mismatch{
		Provider: provider, Kind: n.Kind, Event: truncate(n.Event), TradeNo: truncate(n.TradeNo), Payment: truncate(n.Payment), Dispute: truncate(n.Dispute),
		Amount: n.Amount, Currency: truncate(n.Currency), Reason: truncate(reason),
	}
}

// decline records a notice that fits no order as a mismatch, once. A notice about an unknown
// payment is kept until that payment arrives. If no order was found, o must be an empty order.
func (a *application) decline(ctx context.Context, t storage.Txn, now time.Time, o *records.OrderRecord, reason string) error {
	m := &records.MismatchRecord{Mismatch: mismatchOf(a.provider, a.notice, reason), By: a.attempt}
	m.Time, m.Order, m.User = now.UnixMilli(), o.TradeNo, o.User
	before, err := records.Mismatches.Get(t, m.Digest())
	if err != nil || before != nil && before.By == a.attempt {
		return err // nil if an earlier run was committed
	}
	a.outcome, a.event = Outcome{Result: Mismatched, Reason: reason}, nil
	if before != nil {
		return nil
	}
	if err := records.Mismatches.Put(t, nil, m); err != nil {
		return err
	}
	a.event = &audit.Event{
		Actor: a.provider, Action: "topup.mismatch", User: o.User,
		Detail: detail(string(m.Kind), m.Event, m.TradeNo, amountOf(m.Amount, m.Currency), m.Reason),
	}
	return audit.Record(ctx, t, now, a.event)
}

// applyWaiting applies the notices about a payment that arrived before the payment, in the
// order of their arrival.
func (a *application) applyWaiting(t storage.Txn, now time.Time, o *records.OrderRecord) error {
	if o.Payment == "" {
		return nil
	}
	for m, err := range records.Mismatches.Scan(t, records.WaitingMismatches.Under(records.PaymentHash(o.Provider, o.Payment))) {
		if err == nil {
			err = a.applyMismatch(t, now, o, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// applyMismatch applies one mismatch and deletes it. If it does not fit the order either, it stays listed.
func (a *application) applyMismatch(t storage.Txn, now time.Time, o *records.OrderRecord, m *records.MismatchRecord) error {
	n := payments.Notice{Kind: m.Kind, Event: m.Event, Payment: m.Payment, Dispute: m.Dispute, Amount: m.Amount, Currency: m.Currency}
	applied, err := records.Notices.Has(t, a.provider, string(n.Kind), n.Event)
	if err != nil || applied || n.Currency != o.Currency {
		return err // a notice with the same id was applied meanwhile, about another payment
	}
	o.Note(n)
	o.AddNotice(time.UnixMilli(m.Time), n)
	if err := moveDue(t, now, o, n.Kind, o.Amount-o.TakenWallet); err != nil {
		return err
	}
	return errors.Join(records.Notices.Put(t, nil, a.record(n, now, o)), records.Mismatches.Put(t, m, nil))
}

// MismatchFilter selects the mismatches of a list. An empty field matches all.
type MismatchFilter struct {
	User, Provider, Kind string
	Payment              string // the service's id of the payment
	Open, Resolved       bool   // only open or only resolved mismatches
}

func (f *MismatchFilter) match(m *records.MismatchRecord) bool {
	return (f.User == "" || f.User == m.User) && (f.Provider == "" || f.Provider == m.Provider) && (f.Kind == "" || f.Kind == string(m.Kind)) &&
		(f.Payment == "" || f.Payment == m.Payment) &&
		(!f.Open || m.Resolved == nil) && (!f.Resolved || m.Resolved != nil)
}

// Mismatches returns at most limit mismatches, latest first, that follow the mismatch with the id
// after. Next is as in [Service.ListOrders]. With a provider and a payment it reads only the mismatches
// of that payment.
func (b *Service) Mismatches(ctx context.Context, f MismatchFilter, after string, limit int64) (list []*records.MismatchRecord, next string, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		in, index := records.LatestMismatches.Under(), &records.LatestMismatches
		if f.Payment != "" && f.Provider != "" {
			in, index = records.PaymentMismatches.Under(records.PaymentHash(f.Provider, f.Payment)), &records.PaymentMismatches
		}
		in = in.Before(storage.Inverted(b.store.Now().Add(-records.MismatchRetention).UnixMilli()))
		if after != "" {
			last, err := records.Mismatches.Get(r, after)
			if err == nil && last == nil {
				err = fault.At(fault.InvalidParameter, "after", "after must be the id of a mismatch")
			}
			if err != nil {
				return err
			}
			in = records.Mismatches.After(in, index, last)
		}
		var last *records.MismatchRecord
		if list, last, err = records.Mismatches.Matching(r, in, limit, maxExamined, f.match); last != nil {
			next = last.Digest()
		}
		return err
	})
	return list, next, err
}

// MismatchUser returns the id of the user of a mismatch; empty if it has none.
func (b *Service) MismatchUser(ctx context.Context, id string) (user string, err error) {
	err = b.view(ctx, func(r storage.Reader) error {
		m, err := records.Mismatches.Get(r, id)
		if err == nil && m == nil {
			err = fault.At(fault.NotFound, "id", "there is no mismatch %q", id)
		}
		if err == nil {
			user = m.User
		}
		return err
	})
	return user, err
}

// Resolve records that an operator has closed a mismatch, and why. The mismatch stays stored, and
// no money moves. A refund of an unknown payment still counts when that payment arrives.
func (b *Service) Resolve(ctx context.Context, actor, id, reason string) (resolved *records.MismatchRecord, err error) {
	if err := audit.CheckReason(reason, true); err != nil {
		return nil, err
	}
	err = b.directory.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		before, err := records.Mismatches.Get(t, id)
		switch {
		case err != nil:
			return nil, err
		case before == nil:
			return nil, fault.At(fault.NotFound, "id", "there is no mismatch %q", id)
		case before.Resolved != nil:
			return nil, fault.At(fault.Conflict, "id", "the mismatch %s is already resolved: %s", id, before.Resolved.Reason)
		}
		m := *before
		m.Resolved = &records.Resolution{Time: b.store.Now().UnixMilli(), Actor: actor, Reason: reason}
		resolved = &m
		return &audit.Event{
			Actor: actor, Action: "mismatch.resolve", User: m.User, Detail: detail(id, m.Provider, string(m.Kind), m.Event),
		}, records.Mismatches.Put(t, before, &m)
	})
	return resolved, err
}
