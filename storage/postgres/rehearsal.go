package postgres

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
)

// maxRehearsals is how often an update is rehearsed at most. Which keys it reads may depend on
// values that the run before did not have.
const maxRehearsals = 4

// rehearsal runs an update over values that may be out of date, only to learn which keys it reads,
// so that the write lock is not held while they are read one by one. A wrong result only costs time.
type rehearsal struct {
	engine  *engine
	ctx     context.Context
	read    map[string]bool
	keys    [][]byte // that it has read
	size    int      // bytes that its last run has written
	missing [][]byte // those of keys that have no value in the cache
}

// rehearse returns the keys that fn will probably read.
func (e *engine) rehearse(ctx context.Context, fn func(storage.Txn) error) foreseen {
	r := &rehearsal{engine: e, ctx: ctx, read: make(map[string]bool)}
	for range maxRehearsals {
		r.missing = nil
		r.run(fn)
		if len(r.missing) == 0 || !r.fetch() {
			break
		}
	}
	return foreseen{r.keys, r.size}
}

// foreseen is what a rehearsal has found of an update.
type foreseen struct {
	keys [][]byte // that it reads
	size int      // bytes that it writes
}

// run runs fn once. It ignores errors and panics, because old values may contradict each other.
func (r *rehearsal) run(fn func(storage.Txn) error) {
	defer func() { _ = recover() }()
	b := storage.NewBuffer(r)
	_ = fn(b)
	w := new(writes)
	_ = b.Apply(w)
	r.size = w.size
}

// Rehearsed marks the reader of a rehearsal, see [storage.Rehearsed].
func (*rehearsal) Rehearsed() bool { return true }

// fetch reads the missing values in one round trip. It returns false if it cannot.
func (r *rehearsal) fetch() bool {
	rows, err := r.query(r.engine.sql.gets, r.missing)
	if err != nil {
		return false
	}
	for _, key := range r.missing {
		r.engine.cache.keep(key, nil)
	}
	for _, row := range rows {
		r.engine.cache.keep(row[0], row[1])
	}
	return true
}

// Get implements storage.Reader.
func (r *rehearsal) Get(key []byte) ([]byte, error) {
	val, known := r.engine.cache.get(key)
	if !r.read[string(key)] {
		own := append([]byte(nil), key...)
		r.read[string(key)] = true
		r.keys = append(r.keys, own)
		if !known {
			r.missing = append(r.missing, own)
		}
	}
	return val, nil
}

// Scan implements storage.Reader. It reads the database: the keys that fn reads next usually
// come from what it finds.
func (r *rehearsal) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return scan(r.query, r.engine.sql, lo, hi, fn)
}

func (r *rehearsal) query(sql string, args ...any) (rows [][][]byte, err error) {
	err = r.engine.readers.with(r.ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		ctx, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		rows, _, err = query(ctx, conn, sql, args...)
		return err
	})
	return rows, err
}
