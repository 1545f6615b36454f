package ledger

import (
	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// HoldInfo is a hold as it stands.
type HoldInfo struct {
	ID      ID
	User    string
	State   HoldState
	Amount  money.Amount // what was set aside
	Charged money.Amount // what it was settled for
}

// ReadHold returns a hold of a user and whether there is one.
func ReadHold(r storage.Reader, user string, id ID) (info HoldInfo, found bool, err error) {
	var h holdRecord
	found, err = storage.GetRecord(r, holdKey(user, id), &h)
	return h.info(), found, err
}

// ScanHolds calls fn for all holds, until it returns an error. What cannot be
// read is left out: [Verify] tells of that.
func ScanHolds(r storage.Reader, fn func(HoldInfo) error) error {
	return eachRecord(r, holdPrefix, func(_, record []byte) error {
		var h holdRecord
		if storage.DecodeRecord(record, &h) != nil {
			return nil
		}
		return fn(h.info())
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
