package billing

import (
	"context"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Account returns an account of a user by a name of [AccountOf]. It also accepts
// quota/<subscription>/2026-11-20, the last period that began on this UTC day or before, and
// quota/<subscription>, the present or the last period.
func (b *Service) Account(ctx context.Context, user, name string) (a journal.Account, err error) {
	rest, quota := strings.CutPrefix(name, "quota/")
	id, day, dated := strings.Cut(rest, "/")
	subscription, notNumber := strconv.ParseInt(id, 10, 64)
	began := b.store.Now()
	var notDay error
	if dated {
		began, notDay = time.Parse(time.DateOnly, day)
		began = began.AddDate(0, 0, 1).Add(-time.Second)
	}
	if !quota || notNumber != nil || notDay != nil {
		return AccountOf(user, name)
	}
	err = b.view(ctx, func(r storage.Reader) error {
		s, err := readSubscription(r, user, subscription)
		if err != nil {
			return err
		}
		sale, found, err := s.SaleAt(r, began.Unix())
		if err != nil {
			return err
		}
		if !found {
			return fault.At(fault.InvalidParameter, "account", "the subscription %d began only on %s", subscription, time.Unix(s.Start, 0).UTC().Format(time.DateOnly))
		}
		p, _, err := s.PeriodAt(r, time.Unix(min(began.Unix(), sale.Until-1), 0))
		a = s.QuotaAccount(p.Start)
		return err
	})
	return a, err
}

// AccountOf returns an account of a user by its public name: wallet or the empty name; receivable;
// or quota/<subscription>/<start>, where start is the start of the period in Unix seconds. It
// returns an error for any other name.
func AccountOf(user, name string) (journal.Account, error) {
	switch name {
	case "", "wallet":
		return journal.Wallet(user), nil
	case "receivable":
		return journal.Receivable(user), nil
	}
	if rest, ok := strings.CutPrefix(name, "quota/"); ok {
		id, start, _ := strings.Cut(rest, "/")
		subscription, err := strconv.ParseInt(id, 10, 64)
		seconds, err2 := strconv.ParseInt(start, 10, 64)
		if err == nil && err2 == nil {
			return records.QuotaAccount(user, subscription, seconds), nil
		}
	}
	return "", fault.At(fault.InvalidParameter, "account",
		"`account` is wallet, receivable or quota/<subscription_id>/<start of the period in Unix seconds>")
}

// Span is the time that a transfer about a subscription pays for, from From to before Until, in
// Unix seconds.
type Span struct {
	Subscription int64
	From, Until  int64
}

// Spans returns a span for each transfer among lines that is about a subscription: the time of
// the sale, or of the period whose quota is granted.
func (b *Service) Spans(ctx context.Context, user string, a journal.Account, lines []ledger.EntryInfo) (map[journal.ID]Span, error) {
	spans := make(map[journal.ID]Span)
	err := b.view(ctx, func(r storage.Reader) error {
		for _, line := range lines {
			id, err := strconv.ParseInt(strings.TrimPrefix(line.Reference, records.ReferencePrefix), 10, 64)
			if err != nil || records.Reference(id) != line.Reference {
				continue
			}
			s, err := readSubscription(r, user, id)
			if err != nil {
				return err
			}
			span := Span{Subscription: id}
			for sale, err := range s.Sales(r) {
				if err != nil {
					return err
				}
				if sale.Transfer == line.Transfer {
					span.From, span.Until = sale.From, sale.Until
				}
			}
			if start, _ := strconv.ParseInt(path.Base(a.Own()), 10, 64); span.From == 0 && start != 0 {
				p, _, err := s.PeriodAt(r, time.Unix(start, 0))
				if err != nil {
					return err
				}
				span.From, span.Until = start, p.Presence().Until
			}
			spans[line.Transfer] = span
		}
		return nil
	})
	return spans, err
}
