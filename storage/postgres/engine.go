package postgres

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/caddy-modelgate/modelgate/storage"
)

// engine is an open store. Views have snapshots of the database. The updates of all nodes run one
// after another, because each holds the write lock.
type engine struct {
	of       *target
	sql      statements
	views    *pool
	beats    *pool // of one connection, for views that must not wait
	readers  *pool // of one connection, for rehearsals
	updates  *pool // of one connection
	patience time.Duration
	clock    *clock
	cache    *cache // for rehearsals

	writer chan struct{} // holds a token while an update of this node runs

	life       context.Context // ends when Close begins to release the store
	end        context.CancelFunc
	background sync.WaitGroup
	mu         sync.Mutex // guards closed, and calls of running.Add against it
	closed     bool
	running    sync.WaitGroup
	close      func() error
}

// start returns an engine over a database that has the tables.
func start(of *target, patience time.Duration, c *clock) *engine {
	e := &engine{
		of: of, sql: of.sql, views: newPool(of, maxViews), beats: newPool(of, 1), readers: newPool(of, 1), updates: newPool(of, 1), patience: patience, clock: c, cache: newCache(),
		writer: make(chan struct{}, 1),
	}
	e.life, e.end = context.WithCancel(context.Background())
	e.close = sync.OnceValue(e.shutdown)
	e.background.Go(e.purge)
	return e
}

// Shared implements [storage.Shared].
func (e *engine) Shared() bool { return true }

// View implements storage.Engine.
func (e *engine) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	pool := e.views
	if storage.Vital(ctx) {
		pool = e.beats
	}
	var outcome error // of fn, which must not run again
	err := pool.with(ctx, func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := e.begin(ctx, conn); err != nil {
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

// begin takes a snapshot, and measures the time of the database.
func (e *engine) begin(ctx context.Context, conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	batch, sent := new(pgconn.Batch), time.Now()
	add(batch, beginView)
	add(batch, e.sql.clock) // BEGIN alone takes no snapshot
	results, err := conn.ExecBatch(ctx, batch).ReadAll()
	if err == nil {
		e.clock.learn(number(results[1].Rows[0][0]), sent)
	}
	return err
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

// Update implements storage.Engine. It tries again for a while if the database cannot be
// reached and nothing has happened. ctx has no effect after the commit begins.
func (e *engine) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if err := e.enter(ctx); err != nil {
		return err
	}
	defer e.running.Done()
	select {
	case e.writer <- struct{}{}:
		defer func() { <-e.writer }()
	case <-ctx.Done():
		return ctx.Err()
	}
	plan := e.rehearse(ctx, fn)
	for deadline := time.Now().Add(e.patience); ; {
		err := e.withLock(ctx, plan, fn)
		if !errors.Is(err, storage.ErrUnreachable) || !e.pause(ctx, deadline) {
			return err
		}
	}
}

// retryPause is the time between two attempts to reach the database.
const retryPause = 50 * time.Millisecond

// pause waits before the next attempt. It returns false if there is none.
func (e *engine) pause(ctx context.Context, deadline time.Time) bool {
	if time.Until(deadline) < retryPause {
		return false
	}
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-e.life.Done():
	}
	return false
}

// purgeInterval is the time between two rounds of removing records past their purge time.
const purgeInterval = time.Minute

// purge removes records past their purge time until the engine is closed. Nodes that do so at
// the same time skip each other's records.
func (e *engine) purge() {
	tick := time.NewTicker(purgeInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-e.life.Done():
			return
		}
		for removed := int64(1); removed > 0 && e.life.Err() == nil; {
			err := e.views.with(e.life, func(ctx context.Context, conn *pgconn.PgConn) (err error) {
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

// Close implements storage.Engine. It waits for running transactions.
func (e *engine) Close() error { return e.close() }

func (e *engine) shutdown() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.end()
	e.running.Wait()
	e.background.Wait()
	for _, p := range []*pool{e.views, e.beats, e.readers, e.updates} {
		p.close()
	}
	return nil
}

// explain returns the error of package storage for an error of a statement before the commit, or of
// a commit that the server has refused: nothing has happened.
func explain(err error) error {
	switch code(err) {
	case diskFull:
		return fmt.Errorf("%w: %w", storage.ErrLowSpace, err)
	case limitExceeded:
		return fmt.Errorf("%w: %w", storage.ErrTooLarge, err)
	case serialization, deadlock:
		return fmt.Errorf("%w: %w", storage.ErrConflict, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnreachable, err)
}

// Interface guards
var (
	_ storage.Engine = (*engine)(nil)
	_ storage.Shared = (*engine)(nil)
)
