package verify

import (
	"context"
	"iter"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// cursor walks over the records of a range, so that several ranges can be walked
// side by side. It reads a chunk at a time, which is all it keeps. It is at its end
// when a read has failed.
type cursor struct {
	v      *verification
	prefix string // of all keys
	lo, hi []byte // what has not been read yet; lo is nil when everything was
	chunk  []pair // read, and not walked over yet
	room   []pair // in which chunks are read
}

type pair struct{ key, val []byte }

// chunkSize is how many records a cursor reads at a time.
const chunkSize = 256

// cursor returns a cursor over the keys that begin with prefix and go on with
// what lies in [from, to); an empty to is the end.
func (v *verification) cursor(prefix, from, to string) *cursor {
	c := &cursor{v: v, prefix: prefix, lo: []byte(prefix + from), hi: []byte(prefix + to)}
	if to == "" {
		c.hi = storage.PrefixEnd([]byte(prefix))
	}
	return c
}

// key returns the key that the cursor stands on, or nil at the end.
func (c *cursor) key() []byte {
	if len(c.chunk) == 0 && c.lo != nil && c.v.err == nil {
		lo := c.lo
		c.lo, c.room = nil, c.room[:0]
		c.v.err = c.v.reader.Scan(lo, c.hi, func(key, val []byte) bool {
			if len(c.room) == chunkSize {
				c.lo = key
				return false
			}
			c.room = append(c.room, pair{key, val})
			return true
		})
		c.chunk = c.room
	}
	if len(c.chunk) == 0 || c.v.err != nil {
		return nil
	}
	return c.chunk[0].key
}

// rest returns the key that the cursor stands on without the prefix; false at
// the end.
func (c *cursor) rest() (string, bool) {
	key := c.key()
	if key == nil {
		return "", false
	}
	return string(key[len(c.prefix):]), true
}

// user returns whose record the cursor stands on; false at the end.
func (c *cursor) user() (string, bool) {
	rest, more := c.rest()
	if c.prefix == journal.AccountPrefix || c.prefix == journal.EntryPrefix {
		rest = strings.TrimPrefix(rest, journal.UserPrefix)
	}
	user, _, _ := strings.Cut(rest, "/")
	return user, more
}

// next returns the record that the cursor stands on, of which key has returned the key, and goes
// on to the next.
func (c *cursor) next() (key, val []byte) {
	p := c.chunk[0]
	c.chunk = c.chunk[1:]
	return p.key, p.val
}

// of yields the records of a user, whose first the cursor stands on.
func (c *cursor) of(user string) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, val []byte) bool) {
		for have, more := c.user(); more && have == user; have, more = c.user() {
			if !yield(c.next()) {
				return
			}
		}
	}
}

// records yields all records whose keys begin with prefix.
func (v *verification) records(prefix string) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, val []byte) bool) {
		for c := v.cursor(prefix, "", ""); c.key() != nil; {
			if !yield(c.next()) {
				return
			}
		}
	}
}

// interruptible reads until a context ends.
type interruptible struct {
	ctx context.Context
	r   storage.Reader
}

// Get implements [storage.Reader].
func (i interruptible) Get(key []byte) ([]byte, error) {
	if err := i.ctx.Err(); err != nil {
		return nil, err
	}
	return i.r.Get(key)
}

// Scan implements [storage.Reader].
func (i interruptible) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	err := i.ctx.Err()
	if err != nil {
		return err
	}
	seen := 0
	scanned := i.r.Scan(lo, hi, func(key, val []byte) bool {
		if seen++; seen%256 == 0 {
			if err = i.ctx.Err(); err != nil {
				return false
			}
		}
		return fn(key, val)
	})
	if scanned != nil {
		return scanned
	}
	return err
}
