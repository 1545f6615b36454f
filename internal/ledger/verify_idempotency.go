package ledger

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/storage"
)

const idempotencyPrefix = "idem/"

// idempotencyKeys looks whether what was answered once can be answered again.
func (v *verification) idempotencyKeys() error {
	return eachIdempotencyRecord(v.Reader, idempotencyPrefix, func(where, _ string, c idempotencyRecord, err error) error {
		v.IdempotencyKeys++
		switch {
		case err != nil:
			v.tell(where, "its record cannot be read: %v", err)
		case !json.Valid(c.Result):
			v.tell(where, "its record has no answer")
		}
		return nil
	})
}

// ScanAnswers calls fn with what was answered to each idempotency key of a scope; of all
// scopes when it is empty. where names the idempotency key in a [Problem]. What cannot be
// read is left out: [Verify] tells of that.
func ScanAnswers(r storage.Reader, scope string, fn func(where, scope string, result json.RawMessage) error) error {
	prefix := idempotencyPrefix
	if scope != "" {
		prefix += scope + "/"
	}
	return eachIdempotencyRecord(r, prefix, func(where, scope string, c idempotencyRecord, err error) error {
		if err != nil {
			return nil
		}
		return fn(where, scope, c.Result)
	})
}

// eachIdempotencyRecord calls fn for every idempotency key below a prefix. One that cannot be read
// comes with the reason.
func eachIdempotencyRecord(r storage.Reader, prefix string, fn func(where, scope string, c idempotencyRecord, err error) error) error {
	return eachRecord(r, prefix, func(key, record []byte) error {
		name := string(key[len(idempotencyPrefix):])
		cut := max(0, strings.LastIndexByte(name, '/'))
		scope, hash := name[:cut], strings.TrimPrefix(name[cut:], "/")
		var c idempotencyRecord
		err := storage.DecodeRecord(record, &c)
		return fn(fmt.Sprintf("idempotency key %s of %s", hash, scope), scope, c, err)
	})
}
