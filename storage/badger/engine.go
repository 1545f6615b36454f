package badger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// config has the parameters of open.
type config struct {
	dir     string
	size    sizing
	minFree uint64
	free    func(dir string) (uint64, error)
	logger  *zap.Logger
}

// engine is an open store. Updates run one after another while they hold the
// writer's token, which makes them serializable; views run concurrently on
// snapshots.
//
// A commit never returns storage.ErrUnknown. That error tells the caller to
// read again, but a write whose sync failed is visible until the process ends
// and may be gone afterwards. So the engine returns such a failure unchanged,
// Store stops, and only the next start shows which writes are durable.
type engine struct {
	db     *badger.DB
	log    *logger
	lock   *lock
	files  *files
	size   sizing
	space  *space
	rows   *rows
	inline int           // the largest value in bytes that is kept in the tree
	writer chan struct{} // holds a token while an update runs
	spare  []change      // memory for the changes of the next transaction; protected by the token

	heap *heapGrowth

	mu      sync.Mutex // guards closed, and calls of running.Add against it
	closed  bool
	running sync.WaitGroup
	ended   chan struct{} // closed by the first Close
	close   func() error
}

// open locks, cleans up and opens the directory.
func open(c config) (_ *engine, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("opening the store in %s: %w", c.dir, err)
		}
	}()
	if err := prepareDirectory(c.dir); err != nil {
		return nil, err
	}
	held, err := lockDirectory(c.dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, held.release())
		}
	}()
	if err := removeEmptyLogs(c.dir); err != nil {
		return nil, err
	}
	// Opening writes a log for a memtable, and the tables of the memtables that
	// it finds.
	if err := newSpace(c, 2*uint64(c.size.memtable)).check(); err != nil {
		return nil, err
	}
	log := newLogger(c.logger)
	opts := c.size.options(c.dir, log)
	if err := verifyTables(c.dir, opts); err != nil {
		return nil, err
	}
	db, err := badger.Open(opts)
	if err != nil {
		return nil, err
	}
	files, err := watchFiles(c.dir)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	e := &engine{
		db:     db,
		log:    log,
		lock:   held,
		files:  files,
		size:   c.size,
		space:  newSpace(c, c.minFree),
		rows:   newRows(c.size.rows),
		inline: int(c.size.inline()),
		heap:   startHeapGrowth(c.size.heapGrowth),
		writer: make(chan struct{}, 1),
		ended:  make(chan struct{}),
	}
	e.close = sync.OnceValue(e.shutdown)
	e.running.Go(e.collectGarbage)
	return e, nil
}

// View implements storage.Engine. A view that begins during a commit waits for
// it, so that it never shows data that is not durable.
func (e *engine) View(ctx context.Context, fn func(storage.Reader) error) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	endedBefore := e.rows.ended.Load()
	t := e.db.NewTransaction(false)
	defer t.Discard()
	return fn(&view{reader: reader{ctx: ctx, txn: t}, rows: e.rows, endedBefore: endedBefore})
}

// Update implements storage.Engine. ctx has no effect after the commit begins.
func (e *engine) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	if err := e.acquire(ctx); err != nil {
		return err
	}
	defer e.release()

	tx := e.begin(ctx)
	defer e.end(tx)
	if err := fn(tx); err != nil {
		return err
	}
	if tx.refused != nil {
		return tx.refused
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.commit(tx)
}

// Sole implements [storage.Sole]: the directory is locked, and values that were
// read are copies.
func (e *engine) Sole() bool { return true }

// acquire waits for the writer's token.
func (e *engine) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case e.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release returns the writer's token.
func (e *engine) release() { <-e.writer }

// begin begins a transaction, which end must end. The caller holds the writer's
// token.
func (e *engine) begin(ctx context.Context) *txn {
	tx := &txn{reader: reader{ctx: ctx, txn: e.db.NewTransaction(true)}, rows: e.rows, changes: e.spare, inline: e.inline}
	e.spare = nil
	return tx
}

// maxSpared is the largest number of changes for which memory is kept.
const maxSpared = 1 << 14

// end ends a transaction. The caller holds the writer's token.
func (e *engine) end(tx *txn) {
	tx.txn.Discard()
	if clear(tx.changes); cap(tx.changes) <= maxSpared {
		e.spare = tx.changes[:0]
	}
}

// commit makes a transaction durable: its entries in the log, and the names of
// the files that hold them.
func (e *engine) commit(tx *txn) error {
	if !tx.writes {
		return nil
	}
	if err := e.log.failure(); err != nil {
		return err
	}
	if err := e.space.check(); err != nil {
		return err
	}
	e.rows.begin(tx.changes)
	err := tx.txn.Commit()
	e.rows.end(tx.changes, e.after(err))
	switch {
	case errors.Is(err, badger.ErrTxnTooBig):
		return storage.ErrTooLarge
	case errors.Is(err, badger.ErrConflict):
		return storage.ErrConflict
	case err != nil:
		return fmt.Errorf("badger: commit: %w", err)
	}
	if err := e.files.syncNew(); err != nil {
		return fmt.Errorf("badger: commit: %w", err)
	}
	return e.log.failure()
}

// after returns the time of the first snapshot that sees a commit with this
// outcome; zero if there may be none.
func (e *engine) after(outcome error) uint64 {
	if outcome != nil {
		return 0
	}
	t := e.db.NewTransaction(false)
	defer t.Discard()
	return t.ReadTs()
}

// Close implements storage.Engine. It waits for running transactions, so it
// must not be called within one. Later ones are refused.
func (e *engine) Close() error { return e.close() }

func (e *engine) shutdown() error {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	close(e.ended)
	e.running.Wait()
	e.heap.stop()
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(e.db.Close(), makePrivate(e.files.dir), e.lock.release()) }()
	for failures := 1; ; failures++ {
		select {
		case err := <-closed:
			return err
		case err := <-e.log.unflushed:
			if failures == maxFlushFailures {
				return fmt.Errorf("badger: close: %w", err)
			}
		}
	}
}

// maxFlushFailures is the number of failures to write a table after which Close
// returns. Badger goes on and keeps the directory locked, because it may still
// write. What was committed is in the logs, from which the next start reads it.
const maxFlushFailures = 3

// enter registers a running transaction, unless the engine is closed.
func (e *engine) enter() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return storage.ErrClosed
	}
	e.running.Add(1)
	return nil
}

// Interface guards
var (
	_ storage.Engine   = (*engine)(nil)
	_ storage.Backuper = (*engine)(nil)
	_ storage.Sole     = (*engine)(nil)
	_ storage.Adopter  = (*engine)(nil)
)
