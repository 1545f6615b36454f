package journal

import (
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// CallsKept is how long the records of calls are kept unless the configuration says otherwise.
const CallsKept = 90 * 24 * time.Hour

// keepingKey is the key of the store's [Keeping]. It is stored so that all code that writes,
// lists and verifies calls uses the same value, also after a restore of a backup.
var keepingKey = []byte("meta/calls")

// Keeping is how long the records of calls are kept after each was last written.
type Keeping struct {
	Kept   time.Duration `json:"kept_ns"`          // retention of records that are written now
	Before []Shorter     `json:"before,omitempty"` // earlier, shorter retentions, oldest first
}

// Shorter is the retention of records that were written before a time.
type Shorter struct {
	Until int64         `json:"until"` // Unix milliseconds
	Kept  time.Duration `json:"kept_ns"`
}

// ReadKeeping returns how long the store keeps the records of calls.
func ReadKeeping(r storage.Reader) (Keeping, error) {
	k := Keeping{Kept: CallsKept}
	_, err := storage.GetRecord(r, keepingKey, &k)
	return k, err
}

// Keep sets the retention of call records that are written from now on. It keeps earlier,
// shorter retentions as long as they apply to records.
func Keep(t storage.Txn, kept time.Duration, now time.Time) error {
	have, err := ReadKeeping(t)
	if err != nil || have.Kept == kept {
		return err
	}
	next := Keeping{Kept: kept}
	for _, b := range append(have.Before, Shorter{now.UnixMilli(), have.Kept}) {
		if b.Kept < kept && b.Until > now.Add(-kept).UnixMilli() {
			next.Before = append(next.Before, b)
		}
	}
	return storage.SetRecord(t, keepingKey, next)
}

// From returns the time since which no call record has expired.
func (k Keeping) From(now time.Time) time.Time {
	from := now.Add(-k.Kept).UnixMilli()
	for _, b := range k.Before {
		from = max(from, min(b.Until, now.Add(-b.Kept).UnixMilli()))
	}
	return time.UnixMilli(from)
}
