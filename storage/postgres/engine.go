package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// engine is the store of the active gateway. Updates run one after another while they hold
// the writer's token; their closures read what the last commit has left, and their writes are
// one statement at the end. Views have snapshots of the database.
type engine struct {
	of       *target
	sql      statements
	pool     *pool
	lane     *lane
	patience time.Duration
	clock    *clock
	log      *zap.Logger
	cache    *cache

	writer chan struct{} // holds a token while an update runs
	batch  int64         // number of the last batch of this epoch in the database; protected by the token
	doubt  int64         // number of a batch of unknown outcome, or zero; protected by the token

	born   time.Time
	beaten atomic.Int64 // when the last beat that was answered was sent, since born
	fenced chan struct{}
	fence  func()

	life    context.Context // ends when Close begins to release the store
	end     context.CancelFunc
	beating sync.WaitGroup
	mu      sync.Mutex // guards closed, and calls of running.Add against it
	closed  bool
	running sync.WaitGroup
	close   func() error
}

// start returns the engine of a lane.
func start(of *target, l *lane, patience time.Duration, c *clock, log *zap.Logger) *engine {
	e := &engine{
		of: of, sql: of.sql, pool: newPool(of, l.application), lane: l, patience: patience, clock: c, log: log, cache: newCache(),
		writer: make(chan struct{}, 1), born: time.Now(), fenced: make(chan struct{}),
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.fence = sync.OnceFunc(func() { close(e.fenced) })
	e.close = sync.OnceValue(e.shutdown)
	_ = e.beat(l.conn) // the clock is known when the store is; keepLane repeats what fails
	e.beating.Go(e.keepLane)
	e.beating.Go(e.purge)
	log.Info("this gateway is active", zap.Int64("epoch", l.epoch))
	return e
}

// View implements storage.Engine.
func (e *engine) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	var outcome error // of fn, which must not run again
	err := e.pool.with(ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		opening, cancel := context.WithTimeout(ctx, statementTimeout)
		defer cancel()
		if err := conn.Exec(opening, begin).Close(); err != nil {
			return unreachable(ctx, err)
		}
		outcome = (&snapshot{ctx: ctx, conn: conn, sql: e.sql}).end(fn)
		return nil
	})
	if err != nil {
		return err
	}
	return outcome
}

// end runs fn with the snapshot and ends its transaction. If that fails, the connection is
// not used again; fn has its result all the same.
func (s *snapshot) end(fn func(storage.Reader) error) error {
	err := fn(s)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), statementTimeout)
	defer cancel()
	if !s.conn.IsClosed() {
		_ = s.conn.Exec(ctx, "commit").Close()
	}
	return err
}

// Latest runs fn with a reader of what the last commit has left, for the one who writes.
func (e *engine) Latest(ctx context.Context, fn func(storage.Reader) error) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	if err := e.acquire(ctx); err != nil {
		return err
	}
	err := e.settleDoubt(ctx)
	e.release()
	if err != nil {
		return err
	}
	return fn(&latest{ctx: ctx, engine: e})
}

// Update implements storage.Engine. ctx has no effect after the commit begins.
func (e *engine) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	if err := e.acquire(ctx); err != nil {
		return err
	}
	defer e.release()
	if err := e.settleDoubt(ctx); err != nil {
		return err
	}
	base := &latest{ctx: ctx, engine: e}
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
	if err := txn.Apply(w); err != nil {
		return err
	}
	if w.empty() {
		return e.check(ctx)
	}
	return e.commit(w)
}

// check returns ErrFenced if the epoch has ended: what was read may be old then. It asks the
// database only if the last beat was long ago.
func (e *engine) check(ctx context.Context) error {
	if e.Ready() == nil {
		return nil
	}
	rows, err := e.query(ctx, e.sql.fence, e.lane.epoch)
	if err == nil && len(rows) == 0 {
		return e.lost()
	}
	return err
}

// lost ends the engine: another gateway is active.
func (e *engine) lost() error {
	e.fence()
	return fmt.Errorf("%w: epoch %d has ended", storage.ErrFenced, e.lane.epoch)
}

// Sole implements [storage.Sole]: the epoch is fenced, and values that were read are copies.
func (e *engine) Sole() bool { return true }

// Ready implements [storage.Leaser].
func (e *engine) Ready() error {
	silent := time.Since(e.born) - time.Duration(e.beaten.Load())
	if silent > e.patience/2 {
		return fmt.Errorf("%w: the database has not answered for %v", storage.ErrUnreachable, silent.Round(time.Millisecond))
	}
	return nil
}

// Fenced implements [storage.Leaser].
func (e *engine) Fenced() <-chan struct{} { return e.fenced }

// keepLane beats until the engine is closed or fenced.
func (e *engine) keepLane() {
	conn := e.lane.conn
	defer func() {
		if conn != nil {
			closeConn(conn)
		}
	}()
	tick := time.NewTicker(e.patience / 12)
	defer tick.Stop()
	failing := false
	for {
		select {
		case <-tick.C:
		case <-e.life.Done():
			return
		case <-e.fenced:
			return
		}
		var err error
		if conn == nil || conn.IsClosed() {
			ctx, cancel := context.WithTimeout(e.life, e.patience/3)
			conn, err = e.of.connect(ctx, e.lane.application)
			cancel()
		}
		if err == nil {
			err = e.beat(conn)
		}
		if errors.Is(err, storage.ErrFenced) {
			return // the store logs it
		}
		if err != nil && !failing && e.life.Err() == nil {
			e.log.Warn("the database does not answer", zap.Error(err))
		}
		if err == nil && failing {
			e.log.Info("the database answers again")
		}
		failing = err != nil
	}
}

// beat tells the standbys that this gateway is active, and learns the time.
func (e *engine) beat(conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(e.life, e.patience/3)
	defer cancel()
	sent := time.Now()
	rows, _, err := query(ctx, conn, e.sql.beat, e.lane.epoch)
	switch {
	case err != nil:
		return err
	case len(rows) == 0:
		return e.lost()
	}
	e.clock.learn(number(rows[0][0]), sent)
	e.beaten.Store(int64(sent.Sub(e.born)))
	return nil
}

// purgeInterval is the time between two rounds of removing records past their purge time.
const purgeInterval = time.Minute

// purge removes records past their purge time until the engine is closed.
func (e *engine) purge() {
	tick := time.NewTicker(purgeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.life.Done():
			return
		case <-e.fenced:
			return
		}
		for removed := int64(1); removed > 0 && e.life.Err() == nil; {
			err := e.pool.with(e.life, func(ctx context.Context, conn *pgconn.PgConn) (err error) {
				ctx, cancel := context.WithTimeout(ctx, statementTimeout)
				defer cancel()
				_, removed, err = query(ctx, conn, e.sql.purge)
				return err
			})
			if err != nil {
				break // the next round tries again
			}
		}
	}
}

// acquire waits for the writer's token.
func (e *engine) acquire(ctx context.Context) error {
	select {
	case e.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *engine) release() { <-e.writer }

// enter registers a running transaction, unless the engine is closed or ctx has ended.
func (e *engine) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return storage.ErrClosed
	}
	e.running.Add(1)
	return nil
}

// Close implements storage.Engine. It waits for running transactions and gives the store
// free, so that a standby need not wait.
func (e *engine) Close() error { return e.close() }

func (e *engine) shutdown() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.running.Wait()
	e.end()
	e.beating.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), e.patience/3)
	defer cancel()
	err := e.pool.with(ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		_, _, err := query(ctx, conn, e.sql.end, e.lane.epoch)
		return err
	})
	e.pool.close()
	if err != nil { // nothing is lost; a standby takes over when it has waited
		e.log.Warn("the store was not given free", zap.Error(err))
	}
	return nil
}

var errLongTxn = errors.New("the transaction is larger than 256 MiB")

// Interface guards
var (
	_ storage.Engine = (*engine)(nil)
	_ storage.Sole   = (*engine)(nil)
	_ storage.Leaser = (*engine)(nil)
)
