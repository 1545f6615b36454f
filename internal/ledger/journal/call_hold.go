package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// CallHold is the money that an open call of a shared store has set aside, so that no other node
// spends it. It is part of [State.Reserved] of the accounts. A lone store has none, because its calls
// reserve in memory.
type CallHold struct {
	User    string
	Epoch   int64 // of the node that makes the call
	Number  int64 // among the holds of the epoch
	Counted bool  // whether the tolerance of a user counts it as an open call
	Parts   []Leg // amounts that are still held, by account
}

// CallHoldName is the name of the records of [CallHold]. Those of a user are adjacent:
//
//	callhold/<user>/<epoch>/<number>
const CallHoldName = "callhold"

// callHoldLayout is the first byte of the record of a [CallHold]. The record is binary, because each
// call writes one.
const callHoldLayout = 1

// StoreKey returns the key of the record.
func (h *CallHold) StoreKey() []byte { return storage.Key(CallHoldName, h.User, h.Epoch, h.Number) }

func (h *CallHold) encode(key []byte) []byte {
	b := append(make([]byte, 0, 64), callHoldLayout, 0)
	if h.Counted {
		b[1] = 1
	}
	b = binary.AppendUvarint(b, uint64(len(h.Parts)))
	for _, part := range h.Parts {
		b = binary.AppendVarint(appendText(b, part.Account.Own()), int64(part.Held))
	}
	return seal(key, b)
}

// DecodeCallHold decodes the record at the key of a [CallHold].
func DecodeCallHold(key, record []byte) (h CallHold, err error) {
	name, ok := bytes.CutPrefix(key, []byte(CallHoldName+"/"))
	end := len(name) - len("/########/########")
	if !ok || end < 0 || name[end] != '/' || name[end+9] != '/' {
		return h, fmt.Errorf("%q is not the key of a hold of a call", key)
	}
	h.User = string(name[:end])
	h.Epoch, h.Number = int64(binary.BigEndian.Uint64(name[end+1:])), int64(binary.BigEndian.Uint64(name[end+10:])) //nolint:gosec // StoreKey wrote int64
	f, intact := unseal(key, record)
	if !intact {
		return h, errors.New("it is damaged, or belongs to another call")
	}
	layout := f.byte()
	h.Counted = f.byte() == 1
	for range f.count() {
		h.Parts = append(h.Parts, Leg{Account: ownPrefix(h.User) + Account(f.text()), Held: money.Amount(f.number())})
	}
	if layout != callHoldLayout || f.bad || len(f.rest) > 0 {
		return h, errors.New("its layout is not known to this build")
	}
	return h, nil
}

// ReadCallHold returns the hold at a key, or nil if there is none.
func ReadCallHold(r storage.Reader, key []byte) (*CallHold, error) {
	record, err := r.Get(key)
	if err != nil || record == nil {
		return nil, err
	}
	h, err := DecodeCallHold(key, record)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", key, err)
	}
	return &h, nil
}

// Change adds by to the held amounts, and writes the record and the accounts. It returns an error if an
// amount would be below zero.
func (h *CallHold) Change(t storage.Txn, by []Leg) error {
	for _, leg := range by {
		i := slices.IndexFunc(h.Parts, func(part Leg) bool { return part.Account == leg.Account })
		if i < 0 {
			i = len(h.Parts)
			h.Parts = append(h.Parts, Leg{Account: leg.Account})
		}
		if h.Parts[i].Held += leg.Held; h.Parts[i].Held < 0 {
			return fmt.Errorf("ledger: a call takes more of %s than it holds", leg.Account)
		}
	}
	if err := reserve(t, by, +1); err != nil {
		return err
	}
	key := h.StoreKey()
	return t.Set(key, h.encode(key), time.Time{})
}

// End releases what is still held and removes the record.
func (h *CallHold) End(t storage.Txn) error {
	return errors.Join(reserve(t, h.Parts, -1), t.Delete(h.StoreKey()))
}

// reserve adds the held amounts of parts, times sign, to the reserved amounts of the accounts.
func reserve(t storage.Txn, parts []Leg, sign money.Amount) error {
	for _, part := range parts {
		if part.Held == 0 {
			continue
		}
		state, err := ReadState(t, part.Account)
		if err != nil {
			return err
		}
		var fits bool
		if state.Reserved, fits = state.Reserved.Add(sign * part.Held); !fits || state.Reserved < 0 {
			return fmt.Errorf("ledger: the reserved amount of %s would be out of range", part.Account)
		}
		key := AccountKey(part.Account)
		if state == (State{}) { // only reservations have touched it
			err = t.Delete(key)
		} else {
			err = t.Set(key, state.Encode(), time.Time{})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// maxUnread is how many records that cannot be read a scan passes over.
const maxUnread = 100

// ScanCallHolds calls fn for the holds of the open calls of a user, or of all users if user is
// empty, until fn returns false. It passes over those that cannot be read, and returns an error for them.
func ScanCallHolds(r storage.Reader, user string, fn func(CallHold) bool) error {
	lo, hi := storage.Below(CallHoldName)
	if user != "" {
		lo, hi = storage.Below(CallHoldName, user)
	}
	var unread []error
	err := r.Scan(lo, hi, func(key, record []byte) bool {
		h, err := DecodeCallHold(key, record)
		if err != nil {
			unread = append(unread, fmt.Errorf("%q: %w", key, err))
			return len(unread) < maxUnread
		}
		return fn(h)
	})
	return errors.Join(append(unread, err)...)
}
