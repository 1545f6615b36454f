package verify

import (
	"encoding/json"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// idempotencyKeys checks that the result of each idempotency key can be returned again.
func (v *verification) idempotencyKeys() {
	prefix := journal.IdempotencyRecords.Name + "/"
	for key, record := range v.records(prefix) {
		v.IdempotencyKeys++
		name := string(key[len(prefix):])
		cut := max(0, strings.LastIndexByte(name, '/'))
		where := journal.WhereIdempotencyKey(name[:cut], strings.TrimPrefix(name[cut:], "/"))
		var c journal.IdempotencyRecord
		if err := storage.DecodeRecord(record, &c); err != nil {
			v.report(where, "its record cannot be read: %v", err)
		} else if !json.Valid(c.Result) {
			v.report(where, "its record has no result")
		}
	}
}
