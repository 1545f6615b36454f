package badger

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/backup"
)

// Badger's own format of backups is not used. Its writer reads in several transactions
// with different snapshots, and silently omits unreadable values. A file in that
// format that was cut between two blocks restores without an error.

// Backup implements storage.Backuper. It reads one snapshot while updates
// continue; space that they free is released after it ends.
func (e *engine) Backup(ctx context.Context, w io.Writer) error {
	return e.View(ctx, func(r storage.Reader) error {
		err := backup.Write(w, func(add func(backup.Entry) bool) error {
			return r.(*view).each(nil, nil, func(key, val []byte, expires uint64) bool {
				return add(backup.Entry{Key: key, Val: val, Purge: expires})
			})
		})
		if err != nil {
			return fmt.Errorf("badger: backup: %w", err)
		}
		return nil
	})
}

// Restore implements storage.Backuper. It commits while it reads; after an
// error the store holds a part of the copy and must be deleted.
func (e *engine) Restore(ctx context.Context, r io.Reader) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.running.Done()
	if err := e.acquire(ctx); err != nil {
		return err
	}
	defer e.release()

	if err := e.restore(ctx, backup.NewReader(r)); err != nil {
		return fmt.Errorf("badger: restore: %w", err)
	}
	return nil
}

// restore reads a backup into the engine, in transactions as large as the
// engine accepts.
func (e *engine) restore(ctx context.Context, r *backup.Reader) error {
	tx := e.begin(ctx)
	defer func() { e.end(tx) }()
	empty := true
	if err := tx.each(nil, nil, func(_, _ []byte, _ uint64) bool { empty = false; return false }); err != nil {
		return err
	}
	if !empty {
		return storage.ErrNotEmpty
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entry, err := r.Next()
		if err == io.EOF {
			return e.commit(tx)
		}
		if err != nil {
			return err
		}
		err = tx.set(entry.Key, entry.Val, entry.Purge)
		if errors.Is(err, storage.ErrTooLarge) {
			if err := e.commit(tx); err != nil {
				return err
			}
			e.end(tx)
			tx = e.begin(ctx)
			err = tx.set(entry.Key, entry.Val, entry.Purge)
		}
		if err != nil {
			return err
		}
	}
}
