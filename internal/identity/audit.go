package identity

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// Event is one line of the audit: who did what to whom. It is written in the
// transaction of what it tells, so neither exists without the other.
type Event struct {
	Time   int64  `json:"time"`             // Unix seconds
	Actor  string `json:"actor"`            // "operator", or the id of a user
	Action string `json:"action"`           // "key.revoke"
	User   string `json:"user,omitempty"`   // whose account it concerns
	Key    string `json:"key,omitempty"`    // which key, if one
	Detail string `json:"detail,omitempty"` // never a secret
}

// AuditKept is how long events are kept.
const AuditKept = 400 * 24 * time.Hour

// audit writes an event at audit/<inverted time, ns>/<random>, newest first.
func (d *Directory) audit(t storage.Txn, e Event) error {
	now := d.store.Now()
	e.Time = now.Unix()
	key := binary.BigEndian.AppendUint64([]byte("audit/"), uint64(math.MaxInt64-now.UnixNano()))
	key = append(key, '/')
	key = appendRandom62(key, 8)
	return t.Set(key, storage.EncodeRecord(e), now.Add(AuditKept))
}
