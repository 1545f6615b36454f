package verify

import (
	"context"
	"iter"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// cursor walks over the records of a range, so that several ranges can be walked at the same time.
// It keeps only one chunk in memory. After a failed read it is at its end.
type cursor struct {
	v      *verification
	prefix string // of all keys
	lo, hi []byte // range that has not been read; lo is nil if nothing is left
	chunk  []pair // read, but not visited yet
	buffer []pair // memory of the chunks
}

type pair struct{ key, val []byte }

// chunkSize is the number of records that a cursor reads at a time.
const chunkSize = 256

// cursor returns a cursor over the keys with a prefix whose rest lies in [from, to). An empty to
// is an open end.
func (v *verification) cursor(prefix, from, to string) *cursor {
	c := &cursor{v: v, prefix: prefix, lo: []byte(prefix + from), hi: []byte(prefix + to)}
	if to == "" {
		c.hi = storage.PrefixEnd([]byte(prefix))
	}
	return c
}

// key returns the key at the cursor, or nil at the end.
func (c *cursor) key() []byte {
	if len(c.chunk) == 0 && c.lo != nil && c.v.err == nil {
		lo := c.lo
		c.lo, c.buffer = nil, c.buffer[:0]
		c.v.err = c.v.reader.Scan(lo, c.hi, func(key, val []byte) bool {
			if len(c.buffer) == chunkSize {
				c.lo = key
				return false
			}
			c.buffer = append(c.buffer, pair{key, val})
			return true
		})
		c.chunk = c.buffer
	}
	if len(c.chunk) == 0 || c.v.err != nil {
		return nil
	}
	return c.chunk[0].key
}

// rest returns the key at the cursor without the prefix, or false at the end.
func (c *cursor) rest() (string, bool) {
	key := c.key()
	if key == nil {
		return "", false
	}
	return string(key[len(c.prefix):]), true
}

// user returns the user of the record at the cursor, or false at the end.
func (c *cursor) user() (string, bool) {
	rest, more := c.rest()
	if c.prefix == journal.AccountPrefix || c.prefix == journal.EntryPrefix {
		rest = strings.TrimPrefix(rest, journal.UserPrefix)
	}
	user, _, _ := strings.Cut(rest, "/")
	return user, more
}

// next returns the record at the cursor and moves to the next one. key must have been called.
func (c *cursor) next() (key, val []byte) {
	p := c.chunk[0]
	c.chunk = c.chunk[1:]
	return p.key, p.val
}

// of yields the records of a user. The cursor must be at the first of them.
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

// interruptible is a reader whose reads fail after its context has ended.
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
	count := 0
	scanErr := i.r.Scan(lo, hi, func(key, val []byte) bool {
		if count++; count%256 == 0 {
			if err = i.ctx.Err(); err != nil {
				return false
			}
		}
		return fn(key, val)
	})
	if scanErr != nil {
		return scanErr
	}
	return err
}
