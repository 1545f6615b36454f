package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// writes are the changes of a transaction, as the parameters of its statement. It is the
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

// commit makes writes durable. If the connection breaks, it finds out by the number of the
// batch whether they are, and sends them again if they are not. The caller holds the writer's
// token.
func (e *engine) commit(w *writes) error {
	ctx := context.Background()
	for deadline := time.Now().Add(e.patience); ; {
		sure, err := e.send(w)
		if err == nil {
			return nil
		}
		if sure {
			if !errors.Is(err, storage.ErrUnreachable) || !e.pause(ctx, deadline) {
				return err
			}
			continue
		}
		for {
			committed, found := e.findOutcome()
			if found == nil && committed {
				e.cache.committed(w)
				return nil
			}
			if found == nil {
				break // nothing happened
			}
			if errors.Is(found, storage.ErrFenced) {
				return found
			}
			if !e.pause(ctx, deadline) {
				e.cache.clear()
				return fmt.Errorf("%w: %w", storage.ErrUnknown, err)
			}
		}
		if !e.pause(ctx, deadline) {
			return unreachable(ctx, err)
		}
	}
}

// send sends writes as the next batch. If it fails, sure reports that nothing happened;
// otherwise the batch is in doubt.
func (e *engine) send(w *writes) (sure bool, err error) {
	n, reached := e.batch+1, false
	err = e.pool.withOnce(func(ctx context.Context, conn *pgconn.PgConn) error {
		reached = true
		_, _, err := query(ctx, conn, e.sql.write, e.lane.epoch, n, e.batch, w.keys, w.values, w.purges, w.deleted)
		if pgconn.SafeToRetry(err) {
			reached = false
		}
		if err != nil && !conn.IsClosed() {
			err = refused{err}
		}
		return err
	})
	if err == nil {
		e.batch = n
		e.cache.committed(w)
		return true, nil
	}
	if r, ok := errors.AsType[refused](err); ok {
		return true, e.explain(r.error)
	}
	if !reached {
		return true, unreachable(context.Background(), err)
	}
	e.doubt = n
	return false, err
}

// refused is an error with which the server has rolled a statement back.
type refused struct{ error }

// explain returns the error of storage for an error with which the server refused a batch.
func (e *engine) explain(err error) error {
	switch code(err) {
	case divisionByZero:
		return e.lost()
	case diskFull:
		return fmt.Errorf("%w: %w", storage.ErrLowSpace, err)
	case limitExceeded:
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case serialization, deadlock, duplicateKey:
		return fmt.Errorf("%w: %w", storage.ErrConflict, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnreachable, err)
}

// settleDoubt finds the outcome of a batch that is in doubt. Its caller was told so. The
// caller of settleDoubt holds the writer's token.
func (e *engine) settleDoubt(ctx context.Context) error {
	if e.doubt == 0 {
		return nil
	}
	for deadline := time.Now().Add(e.patience); ; {
		committed, err := e.findOutcome()
		if err == nil {
			e.log.Info("the outcome of a commit is known", zap.Bool("committed", committed))
			return nil
		}
		if errors.Is(err, storage.ErrFenced) || !e.pause(ctx, deadline) {
			return err
		}
	}
}

// findOutcome reports whether the batch in doubt was committed. If it was not, findOutcome
// takes its number away, so that the server refuses it should it still arrive. The statement
// waits for the transaction of the batch if the server still runs it.
func (e *engine) findOutcome() (committed bool, err error) {
	n, next := e.doubt, e.doubt+1
	var burnt, ended bool
	var have int64
	err = e.pool.withOnce(func(ctx context.Context, conn *pgconn.PgConn) error {
		rows, _, err := query(ctx, conn, e.sql.burn, e.lane.epoch, next, e.batch)
		if burnt = len(rows) == 1; err != nil || burnt {
			return err
		}
		rows, _, err = query(ctx, conn, e.sql.outcome, e.lane.epoch)
		if err == nil && len(rows) == 1 {
			have, ended = number(rows[0][0]), number(rows[0][1]) == 1
		}
		return err
	})
	switch {
	case err != nil:
		return false, unreachable(context.Background(), err)
	case burnt, have == next: // by this run, or by one whose answer was lost
		e.batch, e.doubt = next, 0
		return false, nil
	case have == n:
		e.batch, e.doubt = n, 0
		if ended {
			e.fence() // committed before the end
		}
		return true, nil
	}
	return false, e.lost()
}

// withOnce runs fn once with a connection that answers, within statementTimeout.
func (p *pool) withOnce(fn func(ctx context.Context, conn *pgconn.PgConn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), statementTimeout)
	defer cancel()
	p.slots <- struct{}{}
	defer func() { <-p.slots }()
	conn, _, err := p.get(ctx)
	if err != nil {
		return err
	}
	return p.run(ctx, conn, fn)
}
