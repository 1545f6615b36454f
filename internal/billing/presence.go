package billing

import (
	"encoding/binary"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// presence is the value of a running subscription in the index: the period that
// it was in when somebody last looked. Sales never change, and a renewal is for
// a time after all of them, so the answer holds for all of [from, until): whoever
// lists what a user may spend has it from the index, without reading what was
// sold. Times are Unix seconds, in eight bytes each; nothing is there when nobody
// has looked.
type presence struct {
	from, until int64
	start       int64 // names the period, which is open
}

const presenceSize = 3 * 8

// presence returns what the index says of a period that is open.
func (p *period) presence() presence { return presence{p.from, p.until, p.start} }

func (x presence) encode() []byte {
	b := make([]byte, 0, presenceSize)
	for _, n := range [...]int64{x.from, x.until, x.start} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// decodePresence reads a value of the index. What it cannot read is looked for
// again.
func decodePresence(b []byte) presence {
	if len(b) != presenceSize {
		return presence{}
	}
	return presence{integer(b, 0), integer(b, 8), integer(b, 16)}
}

// running is a subscription in the index, at its key.
type running struct {
	key      []byte
	end, id  int64
	presence presence // zero when nobody has looked
}

// runningAfter returns the subscriptions of a user that end after a time, soonest
// first.
func runningAfter(r storage.Reader, user string, now time.Time) (all []running, err error) {
	prefix, hi := storage.Below(livePrefix, user)
	err = r.Scan(storage.Key(livePrefix, user, now.Unix()+1), hi, func(key, val []byte) bool {
		all = append(all, running{key, integer(key, len(prefix)), integer(key, len(prefix)+9), decodePresence(val)})
		return true
	})
	return all, err
}

// present returns the period that a subscription is in now, opens it if it is
// due, and notes it in the index. It returns false when none was sold.
func (s *running) present(t storage.Txn, now time.Time, user string) (x presence, found bool, err error) {
	if x = s.presence; x.from <= now.Unix() && now.Unix() < x.until {
		return x, true, nil
	}
	p, found, err := periodAt(t, user, s.id, now)
	if err != nil || !found {
		return x, false, err
	}
	if err := p.open(t, now, user, s.id); err != nil {
		return x, false, err
	}
	x = p.presence()
	return x, true, t.Set(s.key, x.encode(), never)
}
