package ledger

import (
	"github.com/caddy-modelgate/modelgate/money"
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
