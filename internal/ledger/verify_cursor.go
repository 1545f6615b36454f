package ledger

import (
	"context"

	"github.com/caddy-modelgate/modelgate/storage"
)

// cursor walks over the records of a range, so that several ranges can be walked
// side by side. It reads a chunk at a time, which is all it keeps.
type cursor struct {
	r      storage.Reader
	prefix string // of all keys
	lo, hi []byte // what has not been read yet; lo is nil when everything was
	chunk  []pair // read, and not walked over yet
	room   []pair // in which chunks are read
}

type pair struct{ key, val []byte }

// chunkSize is how many records a cursor reads at a time.
const chunkSize = 256

// newCursor returns a cursor over the keys that begin with prefix and go on with
// what lies in [from, to); an empty to is the end.
func newCursor(r storage.Reader, prefix, from, to string) *cursor {
	c := &cursor{r: r, prefix: prefix, lo: []byte(prefix + from), hi: []byte(prefix + to)}
	if to == "" {
		c.hi = storage.PrefixEnd([]byte(prefix))
	}
	return c
}

// peek returns the record that the cursor stands on; a nil key at the end.
func (c *cursor) peek() (key, val []byte, err error) {
	if len(c.chunk) == 0 {
		if c.lo == nil {
			return nil, nil, nil
		}
		lo := c.lo
		c.lo, c.room = nil, c.room[:0]
		err := c.r.Scan(lo, c.hi, func(key, val []byte) bool {
			if len(c.room) == chunkSize {
				c.lo = key
				return false
			}
			c.room = append(c.room, pair{key, val})
			return true
		})
		c.chunk = c.room
		if err != nil || len(c.chunk) == 0 {
			return nil, nil, err
		}
	}
	return c.chunk[0].key, c.chunk[0].val, nil
}

// rest returns the key that the cursor stands on without the prefix; false at
// the end.
func (c *cursor) rest() (string, bool, error) {
	key, _, err := c.peek()
	if err != nil || key == nil {
		return "", false, err
	}
	return string(key[len(c.prefix):]), true, nil
}

// advance goes on to the next record.
func (c *cursor) advance() { c.chunk = c.chunk[1:] }

// eachRecord calls fn for every record whose key begins with prefix.
func eachRecord(r storage.Reader, prefix string, fn func(key, record []byte) error) error {
	records := newCursor(r, prefix, "", "")
	for {
		key, record, err := records.peek()
		if err != nil || key == nil {
			return err
		}
		records.advance()
		if err := fn(key, record); err != nil {
			return err
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
