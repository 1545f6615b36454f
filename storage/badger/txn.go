package badger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/caddy-modelgate/modelgate/storage"
)

// reader reads in one Badger transaction.
type reader struct {
	ctx context.Context
	txn *badger.Txn
}

// get reads the tree. The value is a copy.
func (r *reader) get(key []byte) (val []byte, expires uint64, err error) {
	val, expires, err = r.find(key)
	if errors.Is(err, errUnreadable) {
		// The value may have been moved to another file of the value log
		// between finding its place and reading there.
		val, expires, err = r.find(key)
	}
	return val, expires, err
}

func (r *reader) find(key []byte) (val []byte, expires uint64, err error) {
	item, err := r.txn.Get(key)
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		return nil, 0, nil
	case err != nil:
		return nil, 0, fmt.Errorf("badger: get: %w", err)
	}
	val, err = valueOf(item, nil)
	return val, item.ExpiresAt(), err
}

// Scan implements storage.Reader.
func (r *reader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return r.each(lo, hi, func(key, val []byte, _ uint64) bool { return fn(key, val) })
}

// each is Scan with the time of expiry in seconds. It checks the context first,
// because many scans are short, and then every few hundred keys.
func (r *reader) each(lo, hi []byte, fn func(key, val []byte, expires uint64) bool) error {
	if hi != nil && bytes.Compare(lo, hi) >= 0 {
		return nil
	}
	if err := r.ctx.Err(); err != nil {
		return err
	}
	opts := badger.DefaultIteratorOptions
	opts.PrefetchValues = false // it starts a goroutine per value, and most values are stored with their key
	opts.Prefix = commonPrefix(lo, hi)
	it := r.txn.NewIterator(opts)
	defer it.Close()

	n := 0
	for it.Seek(lo); it.Valid(); it.Next() {
		item := it.Item()
		if hi != nil && bytes.Compare(item.Key(), hi) >= 0 {
			return nil
		}
		if n++; n%256 == 0 {
			if err := r.ctx.Err(); err != nil {
				return err
			}
		}
		// Badger reuses its buffers for the next item, and the caller needs the
		// slices until the transaction ends. One allocation holds the key and
		// the value.
		buf := make([]byte, 0, len(item.Key())+int(item.ValueSize()))
		key := item.KeyCopy(buf)
		val, err := valueOf(item, key[len(key):])
		if err != nil {
			return err
		}
		if !fn(key[:len(key):len(key)], val, item.ExpiresAt()) {
			return nil
		}
	}
	return nil
}

// errUnreadable is the error of a large value that cannot be read from the
// value log.
var errUnreadable = errors.New("badger: value cannot be read from the value log")

// valueOf copies an item's value to dst. If a value in the value log cannot be
// read, Badger only logs that and returns an empty value. Empty values are
// never in the value log.
func valueOf(item *badger.Item, dst []byte) ([]byte, error) {
	val, err := item.ValueCopy(dst)
	if err != nil {
		return nil, fmt.Errorf("badger: value: %w", err)
	}
	if len(val) == 0 && item.EstimatedSize() > item.KeySize() {
		return nil, errUnreadable
	}
	return val, nil
}

// commonPrefix returns the prefix of all keys in [lo, hi).
func commonPrefix(lo, hi []byte) []byte {
	n := 0
	for n < len(lo) && n < len(hi) && lo[n] == hi[n] {
		n++
	}
	return lo[:n]
}

// view is a read-only transaction. It adds the values that it reads to the cache.
type view struct {
	reader
	rows        *rows
	endedBefore uint64 // number of commits that had ended before the snapshot
	kept        int    // values and lists that it has cached
}

// maxKept is the largest number of values and lists that one view caches. A
// view that reads more would displace the rows that other transactions read.
const maxKept = 1024

// countKept counts a value or list and reports whether the view may cache it.
func (v *view) countKept() bool {
	v.kept++
	return v.kept <= maxKept
}

// Get implements storage.Reader.
func (v *view) Get(key []byte) ([]byte, error) {
	at := v.txn.ReadTs()
	if one, known := v.rows.get(key, at); known && one.list == nil {
		return one.val, nil
	}
	val, expires, err := v.get(key)
	if err == nil && v.countKept() {
		v.rows.keep(key, row{val: val, expires: expires, at: at}, v.endedBefore)
	}
	return val, err
}

// Scan implements storage.Reader.
func (v *view) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	if !isFolder(lo, hi) {
		return v.reader.Scan(lo, hi, fn)
	}
	list := row{at: v.txn.ReadTs(), list: []pair{}}
	name := appendListName(nil, lo)
	if one, known := v.rows.get(name, list.at); known && one.list != nil {
		for _, p := range one.list {
			if !fn(p.key, p.val) {
				break
			}
		}
		return nil
	}
	listed, ended := 0, true
	err := v.each(lo, hi, func(key, val []byte, expires uint64) bool {
		if listed += len(key) + len(val); listed <= maxListed {
			list.list = append(list.list, pair{key, val})
		}
		if expires != 0 && (list.expires == 0 || expires < list.expires) {
			list.expires = expires
		}
		ended = fn(key, val)
		return ended
	})
	if err == nil && ended && listed <= maxListed && v.countKept() {
		v.rows.keepList(lo, list, v.endedBefore)
	}
	return err
}

// txn also writes. It does not cache the values that it reads, because it often
// overwrites them.
type txn struct {
	reader
	rows    *rows
	changes []change
	writes  bool
	inline  int   // the largest value in bytes that is stored in the tree
	large   int   // bytes of values that go to the value log
	refused error // error of the first refused write: the rest must not be committed
}

// Set implements storage.Txn. Badger counts expiry in seconds and hides expired
// keys, so purge is rounded up: until then the key is visible.
func (t *txn) Set(key, val []byte, purge time.Time) error {
	return t.set(key, val, expiry(purge))
}

// Get implements storage.Reader.
func (t *txn) Get(key []byte) ([]byte, error) {
	if !t.writes { // otherwise the key may have been written in this transaction
		if one, known := t.rows.get(key, t.txn.ReadTs()); known && one.list == nil {
			return one.val, nil
		}
	}
	val, _, err := t.get(key)
	return val, err
}

func (t *txn) set(key, val []byte, expires uint64) error {
	if len(val) > t.inline {
		t.large += len(val)
	}
	if len(key) > maxKey || t.large > maxLargeValues {
		return t.written(badger.ErrTxnTooBig)
	}
	err := t.txn.SetEntry(&badger.Entry{Key: key, Value: val, ExpiresAt: expires})
	if err == nil { // a refused write is not part of a commit
		t.changes = append(t.changes, change{key: key, val: val, expires: expires})
	}
	return t.written(err)
}

// Delete implements storage.Txn.
func (t *txn) Delete(key []byte) error {
	if len(key) > maxKey {
		return nil // no such key was ever written
	}
	err := t.txn.Delete(key)
	if err == nil {
		t.changes = append(t.changes, change{key: key})
	}
	return t.written(err)
}

// written records the outcome of a write and translates its error.
func (t *txn) written(err error) error {
	t.writes = true
	switch {
	case err == nil:
		return nil
	case errors.Is(err, badger.ErrTxnTooBig):
		err = storage.ErrTooLarge
	default:
		err = fmt.Errorf("badger: write: %w", err)
	}
	if t.refused == nil {
		t.refused = err
	}
	return err
}

// expiry returns the first full second since 1970 that is not before purge, or
// 0, Badger's value for never, for the zero time.
func expiry(purge time.Time) uint64 {
	if purge.IsZero() {
		return 0
	}
	seconds := purge.Unix()
	if purge.Nanosecond() > 0 {
		seconds++
	}
	return uint64(max(seconds, 1))
}
