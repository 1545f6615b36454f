package ledger

import (
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// HoldState is where a hold stands. It leaves Held once.
type HoldState string

// The states of a hold.
const (
	Held    HoldState = "held"
	Settled HoldState = "settled"
	Voided  HoldState = "voided"
)

// holdRecord is a hold. It is stored when it ends: while it is open, the transfer that began
// it is its only record.
type holdRecord struct {
	ID      ID           `json:"id"`
	User    string       `json:"user"`
	State   HoldState    `json:"state"`
	Time    int64        `json:"time"`  // when it began, in Unix milliseconds
	Parts   []Leg        `json:"parts"` // what was held, of which account
	Charged money.Amount `json:"charged"`

	// What was charged counts as a task of this day, key and model. Day is empty
	// if nothing was.
	Day   Day    `json:"day,omitempty"`
	Key   string `json:"key,omitempty"`
	Model string `json:"model,omitempty"`
}

// usage is how a hold counts that was settled.
func (h *holdRecord) usage() Usage {
	return Usage{Day: h.Day, User: h.User, Key: h.Key, Model: h.Model, Tasks: 1, Cost: h.Charged}
}

// holds are the holds that have ended.
var holds = table.Table[holdRecord]{
	Name: "hold",
	Key:  func(h *holdRecord) table.Key { return table.Key{h.User, string(h.ID[:])} },
}

const holdPrefix = "hold/"

func holdKey(user string, id ID) []byte { return storage.Key(holds.Name, user, string(id[:])) }

// Hold makes a reservation durable: what it has is set aside, in the sources and
// under the budgets that it has it from, until the hold is settled or voided. It
// is called in the transaction of [Ledger.Update] that the reservation is given
// to. The id was drawn for it.
func (r *Reservation) Hold(t *Txn, now time.Time, user string, id ID, reference string) error {
	parts := make([]Leg, 0, len(r.parts)+len(r.caps))
	for _, p := range r.parts {
		parts = append(parts, Leg{Account: p.source.account, Held: p.amount})
	}
	for _, c := range r.caps {
		parts = append(parts, Leg{Account: c.account, Held: r.amount})
	}
	_, err := t.BookNew(now, Transfer{ID: id, Kind: Hold, User: user, Legs: parts, Reference: reference})
	return err
}

// readHold returns a hold of a user and whether there is one.
func readHold(r storage.Reader, user string, id ID) (h holdRecord, found bool, err error) {
	ended, err := holds.Get(r, user, string(id[:]))
	if err != nil {
		return h, false, err
	}
	if ended != nil {
		return *ended, true, nil
	}
	x, found, err := ReadTransfer(r, id)
	if err != nil || !found || x.Kind != Hold || x.User != user {
		return h, false, err
	}
	return x.openHold(), true, nil
}

// openHold is the hold that a transfer begins.
func (x *Transfer) openHold() holdRecord {
	h := holdRecord{ID: x.ID, User: x.User, State: Held, Time: x.Time, Parts: make([]Leg, len(x.Legs))}
	for i, leg := range x.Legs {
		h.Parts[i] = Leg{Account: leg.Account, Held: leg.Held}
	}
	return h
}

// EndHold settles a hold for cost, at most what is held, in the order in which
// it was taken, and releases the rest; a cost of zero voids it. What is charged
// counts as a task of today, by the user and the key and to the model of u. A hold
// ends once: ending it again, in whatever way, does nothing and returns what was
// charged the first time.
func EndHold(t storage.Txn, now time.Time, u Usage, id ID, cost money.Amount) (charged money.Amount, err error) {
	h, found, err := readHold(t, u.User, id)
	switch {
	case err != nil:
		return 0, err
	case !found:
		return 0, fmt.Errorf("ledger: there is no hold %s", id)
	case h.State != Held:
		return h.Charged, nil
	}
	x := Transfer{ID: endOf(id), Kind: Void, User: u.User, Reference: id.String()}
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
	switch booked, err := Book(t, now, x); {
	case err != nil:
		return 0, err
	case !booked:
		return 0, fmt.Errorf("ledger: hold %s has ended, and how is not known", id)
	}
	return h.Charged, holds.Put(t, nil, &h)
}

// HoldInfo is a hold as it stands.
type HoldInfo struct {
	ID      ID
	User    string
	State   HoldState
	Amount  money.Amount // what was set aside
	Charged money.Amount // what it was settled for
}

// ReadHold returns a hold of a user and whether there is one;
// [storage.ErrUnreadable] when that cannot be told.
func ReadHold(r storage.Reader, user string, id ID) (info HoldInfo, found bool, err error) {
	h, found, err := readHold(r, user, id)
	return h.info(), found, err
}

// ScanOpenHolds calls fn for all holds that have not ended, with what they are
// about, until it returns an error. What cannot be read is left out: [Verify]
// tells of that.
func ScanOpenHolds(r storage.Reader, fn func(h HoldInfo, reference string) error) error {
	return ScanTransfers(r, func(x Transfer) error {
		if x.Kind != Hold {
			return nil
		}
		ended, err := HasTransfer(r, endOf(x.ID))
		if err != nil || ended {
			return err
		}
		h := x.openHold()
		return fn(h.info(), x.Reference)
	})
}

func (h *holdRecord) info() HoldInfo {
	info := HoldInfo{ID: h.ID, User: h.User, State: h.State, Charged: h.Charged}
	for _, part := range h.Parts {
		if !part.Account.memo() {
			info.Amount += part.Held
		}
	}
	return info
}
