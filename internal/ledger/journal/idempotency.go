package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// IdempotencyRecord is the result of a request with an idempotency key. It is kept forever.
type IdempotencyRecord struct {
	Scope       string          `json:"scope"` // owner of the key
	Hash        ID              `json:"hash"`  // [IDOf] of the key, which may contain any bytes
	Fingerprint ID              `json:"fingerprint"`
	Time        int64           `json:"time"` // Unix seconds
	By          ID              `json:"by"`   // id of the attempt that wrote the result
	Result      json.RawMessage `json:"result"`
}

// IdempotencyRecords is the table of results by scope and key.
var IdempotencyRecords = table.Table[IdempotencyRecord]{
	Name: "idem",
	Key:  func(c *IdempotencyRecord) table.Key { return table.Key{c.Scope, c.Hash.String()} },
}

// ScanResults calls fn with the result of each idempotency key of a scope, or of all scopes if
// scope is empty. where names the idempotency key in a finding. It skips records that cannot be
// decoded: the verification of the ledger reports them.
func ScanResults(r storage.Reader, scope string, fn func(where, scope string, result json.RawMessage) error) error {
	in := IdempotencyRecords.Under()
	if scope != "" {
		in = IdempotencyRecords.Under(scope)
	}
	for c, err := range IdempotencyRecords.Scan(r, in) {
		if err == nil {
			err = fn(WhereIdempotencyKey(c.Scope, c.Hash.String()), c.Scope, c.Result)
		}
		if err != nil && !errors.Is(err, storage.ErrUnreadable) {
			return err
		}
	}
	return nil
}

// WhereIdempotencyKey names an idempotency key in a finding.
func WhereIdempotencyKey(scope, hash string) string {
	return fmt.Sprintf("idempotency key %s of %s", hash, scope)
}
