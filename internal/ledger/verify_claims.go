package ledger

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/storage"
)

const claimPrefix = "idem/"

// claims looks whether what was answered once can be answered again.
func (v *verification) claims() error {
	return eachClaim(v.Reader, claimPrefix, func(where, _ string, c claimRecord, err error) error {
		v.Claims++
		switch {
		case err != nil:
			v.tell(where, "its record cannot be read: %v", err)
		case !json.Valid(c.Result):
			v.tell(where, "its record has no answer")
		}
		return nil
	})
}

// ScanAnswers calls fn with what was answered to each claim of a scope; of all
// scopes when it is empty. where names the claim in a [Problem]. What cannot be
// read is left out: [Verify] tells of that.
func ScanAnswers(r storage.Reader, scope string, fn func(where, scope string, result json.RawMessage) error) error {
	prefix := claimPrefix
	if scope != "" {
		prefix += scope + "/"
	}
	return eachClaim(r, prefix, func(where, scope string, c claimRecord, err error) error {
		if err != nil {
			return nil
		}
		return fn(where, scope, c.Result)
	})
}

// eachClaim calls fn for every claim below a prefix. One that cannot be read
// comes with the reason.
func eachClaim(r storage.Reader, prefix string, fn func(where, scope string, c claimRecord, err error) error) error {
	return eachRecord(r, prefix, func(key, record []byte) error {
		name := string(key[len(claimPrefix):])
		cut := max(0, strings.LastIndexByte(name, '/'))
		scope, hash := name[:cut], strings.TrimPrefix(name[cut:], "/")
		var c claimRecord
		err := storage.DecodeRecord(record, &c)
		return fn(fmt.Sprintf("claim %s of %s", hash, scope), scope, c, err)
	})
}
