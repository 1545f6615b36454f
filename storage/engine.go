// Package storage is the seam between what modelgate means and where it is
// kept. An [Engine] is a small ordered key-value store with serialisable
// transactions; [Store] stands above one engine and is all the domain sees: it
// commits many small changes together, owns the clock by which records expire,
// and stops for good when the engine can no longer be trusted.
package storage

import (
	"context"
	"errors"
	"io"
	"time"
)

// Opener is what a storage module implements: it knows where an engine lives
// and opens it. Opening belongs to the start of a configuration, never to its
// provisioning, because `caddy validate` must work beside a running server.
type Opener interface {
	// Key names the place, so that two configurations that name the same place
	// share one open engine. For Badger it is the real path of the directory.
	Key() string

	// Open opens the engine. It fails when another process holds the place.
	Open(ctx context.Context) (Engine, error)
}

// KeyFiler is an optional interface of an [Opener] whose store lies on this
// machine.
type KeyFiler interface {
	// KeyFile returns the absolute path of the file that holds the master keys of
	// the store. It lies outside the store, so that a copy of the store does not
	// contain its keys.
	KeyFile() string
}

// MediaDirer is an optional interface of an [Opener] whose store lies on this
// machine.
type MediaDirer interface {
	// MediaDir returns the absolute path of the default directory for the media
	// files of the store, and the free space in bytes that these files must leave
	// on the disk. Zero selects the default of the media package.
	MediaDir() (path string, minFree int64)
}

// Clocker is an optional interface of an [Opener] with a clock of its own, for
// tests. Without it, records expire by [time.Now].
type Clocker interface {
	// Now returns the time by which records expire.
	Now() time.Time
}

// Engine is one open store.
type Engine interface {
	// View runs fn over a consistent snapshot.
	View(ctx context.Context, fn func(Reader) error) error

	// Update runs fn in one serialisable transaction and commits it durably.
	// An error of fn rolls everything back and is returned as it is. Besides:
	// ErrConflict and ErrTooLarge, after which nothing has happened, and
	// ErrUnknown, after which it may or may not have. fn may run more than once.
	Update(ctx context.Context, fn func(Txn) error) error

	// Close ends the engine. Everything committed is durable already. From then
	// on transactions get ErrClosed; closing again does no harm.
	Close() error
}

// Reader reads inside a transaction. What it returns is valid until the
// transaction ends and must not be changed.
type Reader interface {
	// Get returns the value of key, or nil, nil when there is none. A value
	// that was set empty is returned as an empty, non-nil slice.
	Get(key []byte) ([]byte, error)

	// Scan calls fn for every key in [lo, hi), ascending, until fn returns
	// false. A nil hi means: to the end. Writes of the same transaction are
	// seen as they were when Scan began; fn may read, scan and write meanwhile.
	Scan(lo, hi []byte, fn func(key, val []byte) bool) error
}

// Txn reads and writes inside a transaction.
type Txn interface {
	Reader

	// Set writes key. After purge the engine may drop it to free space; the
	// zero time means never. Expiry that matters is a field of the value,
	// judged by Store.Now. Neither slice may be changed before the
	// transaction ends.
	Set(key, val []byte, purge time.Time) error

	// Delete removes key; removing an absent key is no error.
	Delete(key []byte) error
}

// Backuper is implemented by engines that can be copied while in use.
type Backuper interface {
	// Backup writes a consistent copy of everything to w.
	Backup(ctx context.Context, w io.Writer) error

	// Restore reads such a copy into an empty engine.
	Restore(ctx context.Context, r io.Reader) error
}

// The errors of engines and of Store.
var (
	// ErrConflict: another transaction came between. Nothing happened.
	ErrConflict = errors.New("storage: transaction conflict")

	// ErrTooLarge: the transaction is larger than the engine takes. Nothing happened.
	ErrTooLarge = errors.New("storage: transaction too large")

	// ErrUnknown: the commit may or may not have happened; look again.
	ErrUnknown = errors.New("storage: commit outcome unknown")

	// ErrLowSpace: the medium is too full to write safely. Nothing happened.
	ErrLowSpace = errors.New("storage: not enough free space")

	// ErrStopped: the store failed and takes no more work until a restart.
	ErrStopped = errors.New("storage: stopped after a failure")

	// ErrClosed: the store was closed.
	ErrClosed = errors.New("storage: closed")
)
