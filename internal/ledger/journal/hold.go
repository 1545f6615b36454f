package journal

import (
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// HoldState is the state of a hold. It changes once, from Held to one of the others.
type HoldState string

// The states of a hold.
const (
	Held    HoldState = "held"
	Settled HoldState = "settled"
	Voided  HoldState = "voided"
)

// HoldRecord is a hold that has ended. The only record of an open hold is the transfer that
// began it.
type HoldRecord struct {
	ID      ID           `json:"id"`
	User    string       `json:"user"`
	State   HoldState    `json:"state"`
	Time    int64        `json:"time"`  // when it began, in Unix milliseconds
	Parts   []Leg        `json:"parts"` // held amounts by account
	Charged money.Amount `json:"charged"`

	// The charge counts as a task of this day, key and model. Day is empty if nothing
	// was charged.
	Day   Day    `json:"day,omitempty"`
	Key   string `json:"key,omitempty"`
	Model string `json:"model,omitempty"`
}

// Usage returns the usage of a captured hold.
func (h *HoldRecord) Usage() Usage {
	return Usage{Day: h.Day, User: h.User, Key: h.Key, Model: h.Model, Tasks: 1, Cost: h.Charged}
}

// amount returns the total held amount.
func (h *HoldRecord) amount() (sum money.Amount) {
	for _, part := range h.Parts {
		if !part.Account.Memo() {
			sum += part.Held
		}
	}
	return sum
}

// Holds is the table of holds that have ended.
var Holds = table.Table[HoldRecord]{
	Name: "hold",
	Key:  func(h *HoldRecord) table.Key { return table.Key{h.User, string(h.ID[:])} },
}

// HoldKey returns the key of the record of a hold.
func HoldKey(user string, id ID) []byte { return storage.Key(Holds.Name, user, string(id[:])) }

// EndOf returns the id of the transfer that ends a hold.
func EndOf(hold ID) ID { return IDOf("end", hold.String()) }

// readHold returns a hold of a user, or nil if there is none.
func readHold(r storage.Reader, user string, id ID) (*HoldRecord, error) {
	if ended, err := Holds.Get(r, user, string(id[:])); err != nil || ended != nil {
		return ended, err
	}
	x, found, err := ReadTransfer(r, id)
	if err != nil || !found || x.Kind != Hold || x.User != user {
		return nil, err
	}
	return x.openHold(), nil
}

// About returns the id of the order, subscription or task that a transfer is for. A transfer that
// ends a hold refers to the hold, so About returns the reference of the transfer that began it.
func About(r storage.Reader, x *Transfer) (string, error) {
	var id ID
	if x.Kind != Settle && x.Kind != Void || id.UnmarshalText([]byte(x.Reference)) != nil {
		return x.Reference, nil
	}
	begin, _, err := ReadTransfer(r, id)
	return begin.Reference, err
}

// openHold returns the hold that a transfer begins.
func (x *Transfer) openHold() *HoldRecord {
	h := &HoldRecord{ID: x.ID, User: x.User, State: Held, Time: x.Time, Parts: make([]Leg, len(x.Legs))}
	for i, leg := range x.Legs {
		h.Parts[i] = Leg{Account: leg.Account, Held: leg.Held}
	}
	return h
}

// EndHold captures cost, at most the held amount, from the parts of a hold in their order, and
// releases the rest. A cost of zero voids the hold. The charge counts as a task of today for the
// user, the key and the model of u. If the hold has already ended, EndHold does nothing and
// returns the earlier charge.
func EndHold(t storage.Txn, now time.Time, u Usage, id ID, cost money.Amount) (charged money.Amount, err error) {
	h, err := readHold(t, u.User, id)
	switch {
	case err != nil:
		return 0, err
	case h == nil:
		return 0, fmt.Errorf("ledger: hold %s does not exist", id)
	case h.State != Held:
		return h.Charged, nil
	}
	x := Transfer{ID: EndOf(id), Kind: Void, User: u.User, Reference: id.String()}
	h.State, h.Charged = Voided, min(cost, h.amount())
	if h.Charged > 0 {
		h.State, x.Kind = Settled, Settle
		h.Day, h.Key, h.Model = DayOf(now), u.Key, u.Model
		if err := h.Usage().Count(t); err != nil {
			return 0, err
		}
	}
	left := h.Charged
	for _, part := range h.Parts {
		paid := h.Charged
		if !part.Account.Memo() {
			paid = min(left, part.Held)
			left -= paid
		}
		x.Legs = append(x.Legs, Leg{Account: part.Account, Amount: -paid, Held: -part.Held})
	}
	x.Legs = append(x.Legs, Leg{Account: Spent, Amount: h.Charged})
	switch booked, err := Book(t, now, x); {
	case err != nil:
		return 0, err
	case !booked:
		return 0, fmt.Errorf("ledger: hold %s has ended, but its record is missing", id)
	}
	return h.Charged, Holds.Put(t, nil, h)
}

// HoldInfo describes a hold.
type HoldInfo struct {
	ID      ID
	User    string
	State   HoldState
	Amount  money.Amount // held amount
	Charged money.Amount // captured amount
}

func (h *HoldRecord) info() HoldInfo { return HoldInfo{h.ID, h.User, h.State, h.amount(), h.Charged} }

// ReadHold returns a hold of a user and whether it exists. If its record cannot be decoded, it
// returns [storage.ErrUnreadable].
func ReadHold(r storage.Reader, user string, id ID) (info HoldInfo, found bool, err error) {
	h, err := readHold(r, user, id)
	if err != nil || h == nil {
		return info, false, err
	}
	return h.info(), true, nil
}

// ScanOpenHolds calls fn for all open holds with their references until fn returns an error. It
// skips holds that cannot be decoded: the verification of the ledger reports them.
func ScanOpenHolds(r storage.Reader, fn func(h HoldInfo, reference string) error) error {
	return ScanTransfers(r, func(x Transfer) error {
		if x.Kind != Hold {
			return nil
		}
		if ended, err := HasTransfer(r, EndOf(x.ID)); err != nil || ended {
			return err
		}
		return fn(x.openHold().info(), x.Reference)
	})
}
