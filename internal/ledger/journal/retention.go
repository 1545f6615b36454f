package journal

import (
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// DefaultRetention is how long call records are kept if the configuration sets nothing.
const DefaultRetention = 90 * 24 * time.Hour

// retentionKey is the key of the stored [Retention]. The store has it so that all code that
// writes, lists and verifies calls uses the same value, also after a backup is restored.
var retentionKey = []byte("meta/calls")

// Retention is how long call records are kept after each was last written.
type Retention struct {
	Kept   time.Duration     `json:"kept_ns"`          // retention of records that are written now
	Before []FormerRetention `json:"before,omitempty"` // earlier, shorter retentions, oldest first
}

// FormerRetention is a retention that applied to records written before Until.
type FormerRetention struct {
	Until int64         `json:"until"` // Unix milliseconds
	Kept  time.Duration `json:"kept_ns"`
}

// ReadRetention returns how long the store keeps call records.
func ReadRetention(r storage.Reader) (Retention, error) {
	k := Retention{Kept: DefaultRetention}
	_, err := storage.GetRecord(r, retentionKey, &k)
	return k, err
}

// SetRetention sets the retention of call records that are written from now on. It keeps earlier,
// shorter retentions as long as they apply to records.
func SetRetention(t storage.Txn, kept time.Duration, now time.Time) error {
	have, err := ReadRetention(t)
	if err != nil || have.Kept == kept {
		return err
	}
	next := Retention{Kept: kept}
	for _, b := range append(have.Before, FormerRetention{now.UnixMilli(), have.Kept}) {
		if b.Kept < kept && b.Until > now.Add(-kept).UnixMilli() {
			next.Before = append(next.Before, b)
		}
	}
	return storage.SetRecord(t, retentionKey, next)
}

// From returns the time since which no call record has expired.
func (k Retention) From(now time.Time) time.Time {
	from := now.Add(-k.Kept).UnixMilli()
	for _, b := range k.Before {
		from = max(from, min(b.Until, now.Add(-b.Kept).UnixMilli()))
	}
	return time.UnixMilli(from)
}
