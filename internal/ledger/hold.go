package ledger

import (
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// HoldState is where a hold stands. It leaves Held once.
type HoldState string

// The states of a hold.
const (
	Held    HoldState = "held"
	Settled HoldState = "settled"
	Voided  HoldState = "voided"
)

// holdRecord is a hold at hold/<user>/<id>.
type holdRecord struct {
	ID      ID           `json:"id"`
	User    string       `json:"user"`
	State   HoldState    `json:"state"`
	Time    int64        `json:"time"`  // Unix milliseconds
	Parts   []Leg        `json:"parts"` // what is held, of which account
	Charged money.Amount `json:"charged"`

	// What was charged counts as a task of this day, key and model. Day is empty
	// while nothing was, and of holds that were settled before tasks counted.
	Day   Day    `json:"day,omitempty"`
	Key   string `json:"key,omitempty"`
	Model string `json:"model,omitempty"`
}

// usage is how a hold counts that was settled.
func (h *holdRecord) usage() Usage {
	return Usage{Day: h.Day, User: h.User, Key: h.Key, Model: h.Model, Tasks: 1, Cost: h.Charged}
}

const holdPrefix = "hold/"

func holdKey(user string, id ID) []byte {
	return append([]byte(holdPrefix+user+"/"), id[:]...)
}

// Hold makes a reservation durable: what it has is set aside, in the pots and
// under the budgets that it has it from, until the hold is settled or voided. It
// is called in the transaction of [Ledger.Update] that the reservation is given
// to. The id was drawn for it.
func (r *Reservation) Hold(t *Txn, now time.Time, user string, id ID, reference string) error {
	parts := make([]Leg, 0, len(r.parts)+len(r.caps))
	for _, p := range r.parts {
		parts = append(parts, Leg{Account: p.pot.account, Held: p.amount})
	}
	for _, c := range r.caps {
		parts = append(parts, Leg{Account: c.account, Held: r.amount})
	}
	booked, err := t.BookNew(now, Transfer{ID: id, Kind: Hold, User: user, Legs: parts, Reference: reference})
	if err != nil || !booked {
		return err
	}
	return storage.SetRecord(t, holdKey(user, id), holdRecord{ID: id, User: user, State: Held, Time: now.UnixMilli(), Parts: parts})
}

// EndHold settles a hold for cost, at most what is held, in the order in which
// it was taken, and releases the rest; a cost of zero voids it. What is charged
// counts as a task of today, by the user and the key and to the model of u. A hold
// ends once: ending it again, in whatever way, does nothing and returns what was
// charged the first time.
func EndHold(t storage.Txn, now time.Time, u Usage, id ID, cost money.Amount) (charged money.Amount, err error) {
	key := holdKey(u.User, id)
	var h holdRecord
	found, err := storage.GetRecord(t, key, &h)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("ledger: there is no hold %s", id)
	case h.State != Held:
		return h.Charged, nil
	}
	x := Transfer{ID: IDOf("end", id.String()), Kind: Void, User: u.User, Reference: id.String()}
	var held money.Amount
	for _, part := range h.Parts {
		if !part.Account.memo() {
			held += part.Held
		}
	}
	h.State, h.Charged = Voided, min(cost, held)
	if h.Charged > 0 {
		h.State, x.Kind = Settled, Settle
		h.Day, h.Key, h.Model = DayOf(now), u.Key, u.Model
		if err := h.usage().count(t); err != nil {
			return 0, err
		}
	}
	left := h.Charged
	for _, part := range h.Parts {
		pays := h.Charged
		if !part.Account.memo() {
			pays = min(left, part.Held)
			left -= pays
		}
		x.Legs = append(x.Legs, Leg{Account: part.Account, Amount: -pays, Held: -part.Held})
	}
	x.Legs = append(x.Legs, Leg{Account: Spent, Amount: h.Charged})
	if _, err := Book(t, now, x); err != nil {
		return 0, err
	}
	return h.Charged, storage.SetRecord(t, key, h)
}
