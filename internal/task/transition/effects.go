package transition

import (
	"fmt"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// queueLast gives a new task, or one that is no longer deferred, the last place in the queue.
func queueLast(c *Change) error {
	if c.Before != nil && c.Before.Resume == c.After.Resume {
		return nil
	}
	err := c.readCounts()
	if err == nil {
		c.After.Place = c.Counts.Last + 1
	}
	return err
}

// hold holds the maximum price of the task.
func hold(c *Change) error {
	if c.After.Hold == 0 {
		return nil
	}
	return c.Reservation.Hold(c.t.(*ledger.Txn), c.now, c.After.User, record.HoldID(c.After.ID), c.After.ID)
}

// capture charges for the results and releases the rest of the hold.
func capture(c *Change) error { return c.endHold(price(c.Before.Quote, c.After.Results)) }

// void releases the hold.
func void(c *Change) error { return c.endHold(0) }

func (c *Change) endHold(cost money.Amount) (err error) {
	if r := c.After; r.Hold > 0 {
		usage := journal.Usage{User: r.User, Key: r.Key, Model: r.Model}
		r.Charged, err = journal.EndHold(c.t, c.now, usage, record.HoldID(r.ID), cost)
	}
	return err
}

// storeBody writes the job of a task at its own key if it is too long for the record.
func storeBody(c *Change) error {
	if c.After.Enclosed {
		return nil
	}
	return c.t.Set(storage.Key(record.BodyPrefix, c.After.ID), c.Body, time.Time{})
}

func dropBody(c *Change) error {
	if c.Before.Enclosed {
		return nil
	}
	return c.t.Delete(storage.Key(record.BodyPrefix, c.Before.ID))
}

// reserveNames writes the session id and the idempotency record.
func reserveNames(c *Change) (err error) {
	r := c.After
	if r.SessionID != "" {
		until := c.now.Add(SessionWindow).UnixMilli()
		err = record.Sessions.Put(c.t, nil, &record.Session{Key: r.Key, Hash: record.HashOf(r.SessionID), Task: r.ID, Until: until})
	}
	if err == nil && r.IdempotencyHash != "" {
		err = record.IdempotencyKeys.Put(c.t, nil, &record.IdempotencyRecord{
			Key: r.Key, Hash: r.IdempotencyHash, Task: r.ID, Fingerprint: c.Fingerprint, Time: c.ms(),
		})
	}
	return err
}

// freeSessionID removes the session id unless another task uses it.
func freeSessionID(c *Change) error {
	r := c.Before
	if r.SessionID == "" {
		return nil
	}
	have, err := record.Sessions.Get(c.t, r.Key, record.HashOf(r.SessionID))
	if err != nil || have == nil || have.Task != r.ID {
		return err
	}
	return record.Sessions.Put(c.t, have, nil)
}

func freeIdempotencyKey(c *Change) error {
	r := c.Before
	if r.IdempotencyHash == "" {
		return nil
	}
	return record.IdempotencyKeys.Put(c.t, &record.IdempotencyRecord{Key: r.Key, Hash: r.IdempotencyHash}, nil)
}

// announce writes the callback of a finished task into the outbox if its API key has an address.
func announce(c *Change) error {
	r := c.After
	has, err := c.writer.HasCallback(c.t, r.Key)
	if err != nil {
		return fmt.Errorf("the callback address of key %s: %w", r.Key, err)
	}
	if !has {
		return nil
	}
	r.Event = true
	return record.Events.Put(c.t, nil, &record.Event{
		Task: r.ID, Key: r.Key, User: r.User, Created: r.Completed, State: record.Undelivered, Due: r.Completed,
	})
}

func dropCallback(c *Change) error {
	if !c.Before.Event {
		return nil
	}
	return record.Events.Delete(c.t, c.Before.ID)
}

// price returns the price of results by the quote of the submission. The hold bounds it.
func price(quote *catalog.Quote, results []record.Media) money.Amount {
	parts := make([]catalog.Work, len(results))
	for i, m := range results {
		parts[i].Count = 1
		if m.Duration > 0 && m.Duration <= float64(catalog.MaxSeconds/catalog.Second) {
			parts[i].Duration = catalog.Seconds(math.Round(m.Duration * float64(catalog.Second)))
		}
		if resolution, common := catalog.ResolutionOf(m.Width, m.Height); common && quote.Kind == catalog.Video {
			parts[i].Resolution = resolution
		}
	}
	return max(0, quote.Cost(parts...))
}
