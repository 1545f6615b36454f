// Package storage stores keys and values for the domain packages and defines
// the interface of storage engines.
//
// An [Engine] is a small ordered key-value store with serializable transactions; an
// [Opener] is the Caddy module that opens one. [Store] wraps one engine and is the
// only part that domain packages use. It commits many small changes together, and owns
// the clock by which records expire. It stops permanently when it can no longer trust
// the engine. [Key] builds keys; package table declares records on top of them.
//
// Several processes may have a [Shared] engine open at the same time. Each is a [Node] after
// [Store.Join]. It has an epoch, which the other nodes end when it is silent. [Store.Tell] writes
// a topic into the feed, and the [Follower] of each node reads it.
//
// The package imports neither Caddy nor another package of this module, so that a
// third party can implement Opener and Engine. Package storagetest tests
// engines.
package storage

import (
	"context"
	"errors"
	"io"
	"time"
)

// Opener is implemented by storage modules. It opens an engine at a configured
// location. Provisioning must not open anything, because `caddy
// validate` must work while a server runs.
type Opener interface {
	// Key returns an identifier of the location. Two configurations with the
	// same key share one open engine. For Badger it is the real path of the
	// directory.
	Key() string

	// Open opens the engine. It fails if another process uses the location, unless the
	// engine is [Shared].
	Open(ctx context.Context) (Engine, error)
}

// KeyFiler is an optional interface of an [Opener] whose store is on this
// machine.
type KeyFiler interface {
	// KeyFile returns the absolute path of the file that holds the master keys of
	// the store. It is outside the store, so that a copy of the store does not
	// contain its keys.
	KeyFile() string
}

// MediaDirer is an optional interface of an [Opener] whose store is on this
// machine.
type MediaDirer interface {
	// MediaDir returns the absolute path of the default directory for the media
	// files of the store. These files must leave minFree bytes on the disk free.
	// Zero selects the default of the media package.
	MediaDir() (path string, minFree int64)
}

// Clocker is an optional interface of an [Opener] with a clock of its own, for
// tests. Without it, records expire by [time.Now].
type Clocker interface {
	// Now returns the time by which records expire.
	Now() time.Time
}

// Sharer is an optional interface of an [Opener] whose engine is [Shared]. The keys and files
// of the store must be where every machine finds them.
type Sharer interface {
	// Shared reports whether other processes can have the store open at the same time.
	Shared() bool
}

// Engine is one open store.
type Engine interface {
	// View runs fn with a consistent snapshot.
	View(ctx context.Context, fn func(Reader) error) error

	// Update runs fn in one serializable transaction and commits it durably. fn
	// may run more than once. If fn returns an error, Update rolls everything
	// back and returns that error unchanged. Other errors: after ErrConflict,
	// ErrTooLarge and ErrUnreachable nothing has happened; after ErrUnknown the
	// commit may or may not have happened.
	Update(ctx context.Context, fn func(Txn) error) error

	// Close closes the engine. Everything committed is durable already. Later
	// transactions return ErrClosed, and closing again has no effect.
	Close() error
}

// Reader reads inside a transaction. Returned slices are valid until the
// transaction ends and must not be changed.
type Reader interface {
	// Get returns the value of key, or nil, nil if there is none. An empty
	// value is returned as an empty, non-nil slice.
	Get(key []byte) ([]byte, error)

	// Scan calls fn for every key in [lo, hi) in ascending order until fn
	// returns false. A nil hi means the end. It sees the writes that the same
	// transaction had made when Scan began. fn may read, scan and write.
	Scan(lo, hi []byte, fn func(key, val []byte) bool) error
}

// Txn reads and writes inside a transaction.
type Txn interface {
	Reader

	// Set writes key. The engine may drop it after purge to free space; the
	// zero time means never. Code that depends on expiry must store it in the
	// value and compare it with Store.Now. Neither slice may be changed before
	// the transaction ends.
	Set(key, val []byte, purge time.Time) error

	// Delete removes key. Removing an absent key is not an error.
	Delete(key []byte) error
}

// Backuper is implemented by engines that can be copied while in use.
type Backuper interface {
	// Backup writes a consistent copy of everything to w.
	Backup(ctx context.Context, w io.Writer) error

	// Restore reads such a copy, of any engine, into an empty one. It returns ErrNotEmpty if
	// there is anything. Package backup has the format.
	Restore(ctx context.Context, r io.Reader) error
}

// Spacer is an optional interface of an [Engine] that refuses writes when its
// medium is almost full.
type Spacer interface {
	// Space returns the free bytes of the medium, and the bound below which
	// writes fail with ErrLowSpace.
	Space() (free, least uint64, err error)
}

// Adopter is an optional interface of an [Engine] whose settings can change while it is open.
type Adopter interface {
	// Adopt applies the settings of another Opener with the same key. It logs those that
	// need a restart.
	Adopt(o Opener)
}

// The errors of engines and of Store.
var (
	// ErrNotEmpty: the engine into which a backup should be read has keys. Nothing happened.
	ErrNotEmpty = errors.New("storage: the store is not empty")

	// ErrConflict: another transaction changed what this one read. Nothing happened.
	ErrConflict = errors.New("storage: transaction conflict")

	// ErrTooLarge: the transaction exceeds a limit of the engine. Nothing happened.
	ErrTooLarge = errors.New("storage: transaction too large")

	// ErrUnknown: the commit may or may not have happened; read again to find out.
	ErrUnknown = errors.New("storage: commit outcome unknown")

	// ErrLowSpace: the medium is too full to write safely. Nothing happened.
	ErrLowSpace = errors.New("storage: not enough free space")

	// ErrUnreachable: the engine cannot reach its data now. Nothing happened; try again.
	ErrUnreachable = errors.New("storage: unreachable")

	// ErrFenced: the epoch of this node of a shared store has ended. Nothing happened. The
	// store stops, and this process may open it and join the other nodes anew.
	ErrFenced = errors.New("storage: the other gateways have ended this one")

	// ErrStopped: the store failed and refuses all calls until a restart.
	ErrStopped = errors.New("storage: stopped after a failure")

	// ErrClosed: the store was closed.
	ErrClosed = errors.New("storage: closed")
)
