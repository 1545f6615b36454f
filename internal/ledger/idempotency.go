package ledger

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// IdempotencyKey names what a caller wants done once. The same key with the same
// fingerprint is answered what was answered the first time; with another
// fingerprint it is refused.
type IdempotencyKey struct {
	Scope       string // whose key: the id of a user, or of an API key
	Key         string // 1 to 255 printable ASCII characters
	Fingerprint ID     // of the operation and all of its parameters
}

// Validate refuses a key that is none. param names the field it came in.
func (c IdempotencyKey) Validate(param string) *fault.Fault {
	if c.Key == "" {
		return fault.At(fault.MissingParameter, param, "%s is required: a unique word such as a UUID, by which this is done once", param)
	}
	if len(c.Key) > 255 {
		return fault.At(fault.InvalidParameter, param, "%s has at most 255 characters, this has %d", param, len(c.Key))
	}
	for _, b := range []byte(c.Key) {
		if b < ' ' || b > '~' {
			return fault.At(fault.InvalidParameter, param, "%s has printable ASCII characters only", param)
		}
	}
	return nil
}

// key is idem/<scope>/<hash of the key>: a key is the caller's text, and may
// hold anything.
func (c IdempotencyKey) key() []byte {
	return []byte("idem/" + c.Scope + "/" + IDOf(c.Key).String())
}

// IdempotencyKeyUsed reports whether something was done under an idempotency key before, whatever
// it was.
func (l *Ledger) IdempotencyKeyUsed(ctx context.Context, c IdempotencyKey) (used bool, err error) {
	err = l.store.View(ctx, func(r storage.Reader) error {
		record, err := r.Get(c.key())
		used = record != nil
		return err
	})
	return used, fault.OfStore(err)
}

// idempotencyRecord is what was answered to an idempotency key. It is kept for ever.
type idempotencyRecord struct {
	Fingerprint ID              `json:"fingerprint"`
	Time        int64           `json:"time"` // Unix seconds
	By          ID              `json:"by"`   // of the attempt that did it
	Result      json.RawMessage `json:"result"`
}

// encode is [storage.EncodeRecord] for what would be looked through twice: the
// result, which is JSON already, stands as it is.
func (c *idempotencyRecord) encode() []byte {
	b := make([]byte, 0, 192+len(c.Result))
	b = append(b, storage.RecordVersion)
	b = hex.AppendEncode(append(b, `{"fingerprint":"`...), c.Fingerprint[:])
	b = strconv.AppendInt(append(b, `","time":`...), c.Time, 10)
	b = hex.AppendEncode(append(b, `,"by":"`...), c.By[:])
	b = append(append(b, `","result":`...), c.Result...)
	return append(b, '}')
}

// Once does something of one user once. reserve is called for what it debits,
// and may return nil; do runs in the transaction as in [Ledger.Update], and
// returns what is to be answered, now and whenever the idempotency key comes again. A
// refusal leaves the idempotency key free. Without a key in the idempotency key, it is simply done.
func (l *Ledger) Once(ctx context.Context, user string, c IdempotencyKey,
	reserve func() (*Reservation, error), do func(*Txn) (any, error),
) (result json.RawMessage, replayed bool, err error) {
	key := c.key()
	if c.Key != "" {
		// The second attempt finds what the first has done, and is not refused
		// for the money that the first has reserved.
		done, err := l.idempotencyKeys.Lock(ctx, string(key))
		if err != nil {
			return nil, false, err
		}
		defer done()
		var have idempotencyRecord
		var found bool
		err = l.store.View(ctx, func(r storage.Reader) (err error) {
			found, err = storage.GetRecord(r, key, &have)
			return err
		})
		if err != nil {
			return nil, false, fault.OfStore(err)
		}
		if found {
			return have.answer(c)
		}
	}
	var reservation *Reservation
	if reserve != nil {
		if reservation, err = reserve(); err != nil {
			return nil, false, err
		}
	}
	var attempt ID
	_, _ = rand.Read(attempt[:])
	err = l.Update(ctx, user, reservation, func(t *Txn) error {
		replayed = false
		if c.Key != "" {
			var have idempotencyRecord
			found, err := storage.GetRecord(t, key, &have)
			if err != nil {
				return err
			}
			if found {
				result, replayed, err = have.answer(c)
				replayed = replayed && have.By != attempt
				return err
			}
		}
		answer, err := do(t)
		if err != nil {
			return err
		}
		if result, err = json.Marshal(answer); err != nil {
			return err
		}
		if c.Key == "" {
			return nil
		}
		done := idempotencyRecord{c.Fingerprint, l.store.Now().Unix(), attempt, result}
		return t.Set(key, done.encode(), time.Time{})
	})
	if err != nil {
		return nil, false, err
	}
	return result, replayed, nil
}

func (c idempotencyRecord) answer(asked IdempotencyKey) (json.RawMessage, bool, error) {
	if c.Fingerprint != asked.Fingerprint {
		return nil, false, fault.At(fault.IdempotencyKeyReused, "idempotency_key",
			"this idempotency key was used at %s for something else; take a new one", time.Unix(c.Time, 0).UTC().Format(time.RFC3339))
	}
	return c.Result, true, nil
}

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
