package journal

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// IdempotencyRecord is what was answered to an idempotency key. It is kept for ever.
type IdempotencyRecord struct {
	Scope       string          `json:"scope"` // whose key
	Hash        ID              `json:"hash"`  // [IDOf] the key, which is the caller's text and may hold anything
	Fingerprint ID              `json:"fingerprint"`
	Time        int64           `json:"time"` // Unix seconds
	By          ID              `json:"by"`   // of the attempt that did it
	Result      json.RawMessage `json:"result"`
}

// IdempotencyRecords are the answers by scope and key.
var IdempotencyRecords = table.Table[IdempotencyRecord]{
	Name: "idem",
	Key:  func(c *IdempotencyRecord) table.Key { return table.Key{c.Scope, c.Hash.String()} },
}

// ScanAnswers calls fn with what was answered to each idempotency key of a scope; of all
// scopes if it is empty. where names the idempotency key in a finding of a verification. A
// record that cannot be read is left out: the verification of the ledger reports it.
func ScanAnswers(r storage.Reader, scope string, fn func(where, scope string, result json.RawMessage) error) error {
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
