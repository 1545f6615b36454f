package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
)

// The write lock is an advisory lock of the database that each update holds, so that the updates of
// all nodes run one after another. An update holds it for two round trips. The first takes the lock
// and reads the keys that the rehearsal has found. The second writes and commits.

// maxIdle is how many milliseconds a transaction may hold the write lock without a statement. Then the server
// ends it, because its node may be stopped.
const maxIdle = 1000

// writeRate is at least how many bytes a gateway prepares and sends in a millisecond, on a busy machine.
// A large transaction may hold the write lock for longer.
const writeRate = 4 << 10

// lockedReader reads in a transaction that holds the write lock.
type lockedReader struct {
	engine *engine
	conn   *pgconn.PgConn
	values map[string][]byte // read under the lock; nil: the key is absent
	err    error             // the first error
}

// withLock runs fn once under the write lock and commits its writes.
func (e *engine) withLock(ctx context.Context, plan foreseen, fn func(storage.Txn) error) error {
	return e.updates.once(ctx, func(conn *pgconn.PgConn) error {
		base := &lockedReader{engine: e, conn: conn, values: make(map[string][]byte, len(plan.keys))}
		if err := base.enter(plan); err != nil {
			return err
		}
		defer base.leave()
		txn := storage.NewBuffer(base)
		if err := fn(txn); err != nil {
			return err
		}
		if base.err != nil {
			return base.err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		w := new(writes)
		if err := txn.Apply(w); err != nil || w.empty() {
			return err
		}
		return base.commit(w)
	})
}

// enter begins a transaction, waits for the write lock, and reads the foreseen keys. A statement at
// the level of READ COMMITTED sees all that was committed before it began, so these see what
// every earlier holder of the lock has written.
func (l *lockedReader) enter(plan foreseen) error {
	ctx, cancel := l.engine.statement()
	defer cancel()
	batch := new(pgconn.Batch)
	add(batch, l.engine.sql.beginUpdate)
	add(batch, fmt.Sprintf(l.engine.sql.idle, maxIdle+plan.size/writeRate))
	add(batch, l.engine.sql.wait)
	add(batch, l.engine.sql.lock)
	if len(plan.keys) > 0 {
		add(batch, l.engine.sql.gets, plan.keys)
	}
	results, err := l.conn.ExecBatch(ctx, batch).ReadAll()
	if err != nil {
		l.leave()
		return explain(err)
	}
	if len(plan.keys) > 0 {
		l.know(plan.keys, results[len(results)-1].Rows)
	}
	return nil
}

// know keeps the values of keys that were read under the lock.
func (l *lockedReader) know(keys [][]byte, rows [][][]byte) {
	for _, key := range keys {
		l.values[string(key)] = nil
	}
	for _, row := range rows {
		l.values[string(row[0])] = row[1]
	}
	for _, key := range keys {
		l.engine.cache.keep(key, l.values[string(key)])
	}
}

// leave ends a transaction that was not committed.
func (l *lockedReader) leave() {
	if l.conn.IsClosed() || l.conn.TxStatus() == 'I' {
		return
	}
	ctx, cancel := l.engine.statement()
	defer cancel()
	_ = l.conn.Exec(ctx, "rollback").Close() // a connection that fails here is not used again
}

// commit writes and commits in one round trip. The error is ErrUnknown if the connection broke: the
// server may have committed.
func (l *lockedReader) commit(w *writes) error {
	ctx, cancel := l.engine.statement()
	defer cancel()
	batch := new(pgconn.Batch)
	if len(w.keys) > 0 {
		add(batch, l.engine.sql.put, w.keys, w.values, w.purges)
	}
	if len(w.deleted) > 0 {
		add(batch, l.engine.sql.remove, w.deleted)
	}
	add(batch, "commit")
	_, err := l.conn.ExecBatch(ctx, batch).ReadAll()
	switch {
	case err == nil && l.conn.TxStatus() == 'I':
		l.engine.cache.committed(w)
		return nil
	case err == nil:
		return fmt.Errorf("%w: the commit was not accepted", storage.ErrUnreachable)
	case l.conn.IsClosed() && !pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
	}
	return explain(err)
}

// Get implements storage.Reader.
func (l *lockedReader) Get(key []byte) ([]byte, error) {
	if val, known := l.values[string(key)]; known {
		return val, nil
	}
	val, err := get(l.run, l.engine.sql, key)
	if err == nil {
		l.values[string(key)] = val
		l.engine.cache.keep(key, val)
	}
	return val, err
}

// Scan implements storage.Reader.
func (l *lockedReader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	return scan(l.run, l.engine.sql, lo, hi, fn)
}

func (l *lockedReader) run(sql string, args ...any) ([][][]byte, error) {
	ctx, cancel := l.engine.statement()
	defer cancel()
	rows, _, err := query(ctx, l.conn, sql, args...)
	if err != nil {
		err = explain(err)
		l.err = errors.Join(l.err, err)
	}
	return rows, err
}

// statement returns the context of a statement under the write lock. No caller may end it, because
// many callers share the transaction.
func (e *engine) statement() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), statementTimeout)
}

// writes are the changes of a transaction, as the parameters of its statements. It is the
// storage.Txn into which a buffer is written.
type writes struct {
	storage.Reader
	keys, values [][]byte
	purges       []int64 // Unix seconds; 0: never
	deleted      [][]byte
	size         int
}

// maxWrite is the largest size of a transaction in bytes. The server allows 1 GiB.
const maxWrite = 256 << 20

var errLongTxn = errors.New("the transaction is larger than 256 MiB")

// Set implements storage.Txn.
func (w *writes) Set(key, val []byte, purge time.Time) error {
	seconds := int64(0)
	if !purge.IsZero() {
		seconds = max(1, purge.Unix())
	}
	w.keys, w.values, w.purges = append(w.keys, key), append(w.values, val), append(w.purges, seconds)
	return w.grow(len(key) + len(val))
}

// Delete implements storage.Txn.
func (w *writes) Delete(key []byte) error {
	w.deleted = append(w.deleted, key)
	return w.grow(len(key))
}

func (w *writes) grow(by int) error {
	if w.size += by; w.size > maxWrite {
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, errLongTxn)
	}
	return nil
}

func (w *writes) empty() bool { return len(w.keys)+len(w.deleted) == 0 }
