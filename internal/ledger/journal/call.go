package journal

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Call is a model call that was sent to a backend.
type Call struct {
	ID          string       `json:"id"`   // of the request
	Time        int64        `json:"time"` // when the request arrived, Unix milliseconds
	User        string       `json:"user"`
	Key         string       `json:"key"`
	Model       string       `json:"model"`
	Route       string       `json:"route"`
	Stream      bool         `json:"stream,omitempty"`
	Status      int          `json:"status,omitempty"` // that the caller received
	Ended       usage.Ended  `json:"ended,omitempty"`  // empty while the call runs
	Usage       usage.Basis  `json:"usage,omitempty"`
	Rule        usage.Rule   `json:"rule,omitempty"` // the rule that decided the charge
	Tokens      usage.Tokens `json:"tokens,omitzero"`
	Cost        money.Amount `json:"cost"`                  // total charge
	Uncollected money.Amount `json:"uncollected,omitempty"` // part of the cost that could not be charged
	FirstByte   int64        `json:"first_byte,omitempty"`  // milliseconds from Time; zero: no byte was sent
	Duration    int64        `json:"duration,omitempty"`    // milliseconds
	Backend     string       `json:"backend,omitempty"`     // address of the last attempt
	Answered    int          `json:"answered,omitempty"`    // status from the backend; zero: no response
	Breakdown   string       `json:"-"`                     // of the cost, as package catalog encodes it; empty: the call is free
}

// Crashed is the ending of a call that a crash of the gateway interrupted.
const Crashed usage.Ended = "crash"

// CallRecord is the stored record of a call with its payments.
type CallRecord struct {
	Call
	Number int // number of the last settlement
	Paid   []Payment
}

// Payment is the amount that the settlements of a call took from one account.
type Payment struct {
	Transfer ID
	Account  string // name within the user, such as "wallet"
	Amount   money.Amount
}

// MaxPaid is how many payments a record lists individually. Each settlement of a long call
// writes the record again, so Pay adds up older payments.
const MaxPaid = 8

// Pay adds a payment.
func (c *CallRecord) Pay(p Payment) {
	c.Paid = append(c.Paid, p)
	if len(c.Paid) <= MaxPaid {
		return
	}
	for i := range c.Paid[:len(c.Paid)-1] {
		first := c.Paid[i]
		for j := i + 1; j < len(c.Paid); j++ {
			if c.Paid[j].Account == first.Account {
				c.Paid[j].Amount += first.Amount
				c.Paid = slices.Delete(c.Paid, i, i+1)
				return
			}
		}
	}
}

// Keys of the store:
//
//	call/<user>/<^time>/<request id>       records of calls, newest first
//	callopen/<user>/<^time>/<request id>   an index of running calls with intermediate settlements;
//	                                       the value is the epoch of the node if the store is shared
const (
	CallPrefix     = "call/"
	OpenCallPrefix = "callopen/"
)

// EpochOfOpenCall returns the epoch in the value of an [OpenCallPrefix] key: the epoch of the node that
// makes the call, or zero in a lone store.
func EpochOfOpenCall(val []byte) (int64, error) {
	switch len(val) {
	case 0:
		return 0, nil
	case 8:
		return int64(binary.BigEndian.Uint64(val)), nil //nolint:gosec // an epoch
	}
	return 0, fmt.Errorf("the index of an open call has a value of %d bytes: %w", len(val), storage.ErrUnreadable)
}

// StoreKey returns the key of the call below one of the prefixes.
func (c *Call) StoreKey(prefix string) []byte {
	key := make([]byte, 0, len(prefix)+len(c.User)+len(c.ID)+10)
	key = append(append(append(key, prefix...), c.User...), '/')
	key = binary.BigEndian.AppendUint64(key, uint64(math.MaxInt64-c.Time))
	return append(append(key, '/'), c.ID...)
}

// CountedModel returns the model by which a call counts in [Usage]. A call that the backend
// refuses costs nothing and may name any model. All such calls count together under no model;
// otherwise a key could fill the store with rows that are never purged.
func (c *Call) CountedModel() string {
	if c.Ended == usage.Refused {
		return ""
	}
	return c.Model
}

// Day returns the day for which the call counts.
func (c *Call) Day() Day { return DayOf(time.UnixMilli(c.Time)) }

// End returns when the call ended.
func (c *Call) End() time.Time { return time.UnixMilli(c.Time + c.Duration) }
