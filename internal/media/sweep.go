package media

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Limits of one Sweep.
const (
	maxFiles    = 64  // expired files that are removed together
	maxRemovals = 8   // concurrent removals of these files
	maxRecords  = 256 // records that are deleted together

	maxUnreadable = 16 // unreadable records that are skipped

	maxOrphans = 256 // files that are checked for a record, and the rest of their folder
)

const (
	// sweepFor is how long one Sweep removes files and deletes records.
	// removeFor limits one removal.
	sweepFor  = 5 * time.Second
	removeFor = 20 * time.Second

	// removeRetry is the delay before a failed removal is repeated.
	removeRetry = time.Hour

	// orphanAge is how old a file without a record must be to be removed. It is
	// longer than the retention of files, so the file cannot belong to another
	// store, or to a backup that will be restored.
	orphanAge = Retention + 24*time.Hour

	// roundInterval is how often all files are checked.
	roundInterval = 24 * time.Hour
)

// round is the position of the current pass over all files.
type round struct {
	mu    sync.Mutex
	after string // cursor; empty: at the beginning
	next  int64  // no pass begins before this time
}

// Sweep removes expired files and abandoned drafts, deletes the records of
// files that are no longer kept, and removes files without a record. It is
// called periodically and does a limited part of the work.
func (a *Archive) Sweep(ctx context.Context) error {
	c := a.config.Load()
	return errors.Join(a.sweepFiles(ctx, c), a.sweepRecords(ctx, c), a.sweepOrphans(ctx, c))
}

// sweepFiles removes expired files and drafts, for a limited time.
func (a *Archive) sweepFiles(ctx context.Context, c *config) error {
	if c.Place == nil {
		return nil
	}
	for begun := time.Now(); ; {
		n, err := a.sweepSome(ctx, c)
		if err != nil || n == 0 || time.Since(begun) >= a.sweepFor {
			return err
		}
	}
}

// sweepSome removes some of the expired files and drafts, and returns how many
// it processed.
func (a *Archive) sweepSome(ctx context.Context, c *config) (int, error) {
	due, unread, err := a.due(ctx)
	if err != nil || len(due) == 0 {
		return 0, errors.Join(err, unread)
	}
	due, unlock := a.lockTasks(due)
	defer unlock()
	errs := make([]error, len(due))
	removing, cancel := context.WithTimeout(ctx, removeFor)
	defer cancel()
	var removals errgroup.Group
	removals.SetLimit(maxRemovals)
	for i, rec := range due {
		removals.Go(func() error {
			errs[i] = c.Place.Remove(removing, rec.Name)
			return nil
		})
	}
	_ = removals.Wait() // errs has the errors
	again := make(map[string]bool)
	for i, rec := range due {
		if errs[i] != nil {
			again[rec.Name] = true
		}
	}
	if len(again) > 0 {
		a.log.Error("expired files could not be removed; the removal is retried", zap.Int("files", len(again)),
			zap.Stringer("place", c.Place), zap.Error(errors.Join(errs...)))
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	return len(due), a.noteRemoved(ctx, due, again)
}

// readable returns the first records of a range, at most limit, and an error
// that counts the unreadable records that it skipped. It stops after
// maxUnreadable of these. The error does not name them, because a name gives
// access to the file.
func readable(r storage.Reader, in table.Range, limit int) (list []*record, unread, err error) {
	bad := 0
	for rec, err := range files.Scan(r, in) {
		switch {
		case errors.Is(err, storage.ErrUnreadable):
			bad++
			unread = fmt.Errorf("%d expired files: %w", bad, err)
		case err != nil:
			return nil, nil, err
		default:
			list = append(list, rec)
		}
		if len(list) == limit || bad > maxUnreadable {
			break
		}
	}
	return list, unread, nil
}

// due returns the records of expired files and drafts, and an error for the
// records that cannot be read.
func (a *Archive) due(ctx context.Context) (due []*record, unread, err error) {
	err = a.view(ctx, func(r storage.Reader) error {
		due, unread, err = readable(r, ending.Under().Before(a.now()+1), maxFiles)
		return err
	})
	return due, unread, err
}

// lockTasks locks the tasks of records and returns the records whose tasks have no
// other work in progress. The caller calls unlock.
func (a *Archive) lockTasks(list []*record) (locked []*record, unlock func()) {
	locks := make(map[string]func())
	for _, rec := range list {
		if locks[rec.Task] == nil {
			unlock := a.work.TryLock(rec.Task)
			if unlock == nil {
				continue
			}
			locks[rec.Task] = unlock
		}
		locked = append(locked, rec)
	}
	return locked, func() {
		for _, unlock := range locks {
			unlock()
		}
	}
}

// noteRemoved records that files were removed, or must be removed again. The
// record of a draft is deleted with it, because its name was never published.
func (a *Archive) noteRemoved(ctx context.Context, removed []*record, again map[string]bool) error {
	err := a.update(ctx, func(t storage.Txn) error {
		for _, rec := range removed {
			have, err := files.Get(t, rec.Name)
			if err != nil {
				return err
			}
			if have == nil || have.End != rec.End {
				continue
			}
			next := *have
			after := &next
			switch {
			case again[rec.Name]:
				next.End = a.now() + removeRetry.Milliseconds()
			case have.kept():
				next.End = 0
			default:
				after = nil
			}
			if err := files.Put(t, have, after); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		a.removed.Add(uint64(len(removed) - len(again)))
	}
	return err
}

// sweepRecords deletes the records of removed files after the retention of tasks,
// for a limited time.
func (a *Archive) sweepRecords(ctx context.Context, c *config) error {
	before := a.now() - c.Kept.Milliseconds()
	if before < 0 {
		return nil
	}
	for begun := time.Now(); ; {
		n, unread, err := a.forgetSome(ctx, before)
		if err != nil || n == 0 || time.Since(begun) >= a.sweepFor {
			return errors.Join(err, unread)
		}
	}
}

// forgetSome deletes some records of files that were kept until before. It
// returns how many, and an error for the records that cannot be read.
func (a *Archive) forgetSome(ctx context.Context, before int64) (n int, unread, err error) {
	err = a.update(ctx, func(t storage.Txn) (err error) {
		var list []*record
		list, unread, err = readable(t, past.Under().Before(before+1), maxRecords)
		if n = len(list); err != nil {
			return err
		}
		for _, rec := range list {
			if err := files.Put(t, rec, nil); err != nil {
				return err
			}
		}
		return nil
	})
	return n, unread, err
}

// sweepOrphans checks some files of the place, and removes those without a
// record.
func (a *Archive) sweepOrphans(ctx context.Context, c *config) error {
	r := &a.round
	r.mu.Lock()
	defer r.mu.Unlock()
	if c.Place == nil || r.after == "" && a.now() < r.next {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeFor)
	defer cancel()
	entries, next, err := c.Place.List(ctx, r.after, maxOrphans)
	if err != nil {
		return err
	}
	orphans, err := a.orphans(ctx, entries)
	if err != nil {
		return err
	}
	for _, name := range orphans {
		if err := c.Place.Remove(ctx, name); err != nil {
			return err
		}
		a.removed.Add(1)
	}
	if len(orphans) > 0 {
		a.log.Warn("files without a record were removed", zap.Int("files", len(orphans)), zap.Stringer("place", c.Place))
	}
	if r.after = next; next == "" {
		r.next = a.now() + roundInterval.Milliseconds()
	}
	return nil
}

// orphans returns the entries that are old enough to be removed and have no
// record, or the record of a removed file.
func (a *Archive) orphans(ctx context.Context, entries []Entry) (list []string, err error) {
	before := a.store.Now().Add(-orphanAge)
	err = a.view(ctx, func(r storage.Reader) error {
		list = nil
		for _, entry := range entries {
			if !entry.Modified.Before(before) {
				continue
			}
			rec, err := files.Get(r, entry.Name)
			if errors.Is(err, storage.ErrUnreadable) {
				continue // the file has a record
			}
			if err != nil {
				return err
			}
			if rec == nil || rec.End == 0 {
				list = append(list, entry.Name)
			}
		}
		return nil
	})
	return list, err
}
