package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Place is where files lie: see [Dir] and [S3]. A file has a name as [IsName]
// knows it, is written once and never changed. Methods are called by many
// goroutines at once, those for one name by one at a time, but that a file may
// be read by any number.
type Place interface {
	// String tells an operator where it is.
	String() string

	// Prepare makes the place ready. It is called by each configuration.
	Prepare() error

	// Room returns an error where there is no room for so many bytes more.
	Room(size int64) error

	// Draft begins the file of a name, or goes on with the draft that there is
	// behind its first from bytes. Its error wraps [errNoDraft] when it has not
	// that many. Writes end with the context.
	Draft(ctx context.Context, name string, from int64) (Draft, error)

	// Size returns the size of a file. The error is [fs.ErrNotExist] where there
	// is none; a draft is none.
	Size(ctx context.Context, name string) (int64, error)

	// Open opens a file. The context holds as long as it is read. The error is
	// [fs.ErrNotExist] where there is none.
	Open(ctx context.Context, name string) (io.ReadSeekCloser, error)

	// Remove removes the file and the draft of a name, where they are.
	Remove(ctx context.Context, name string) error

	// List returns files and drafts that come after a name or a next of an earlier
	// List, about limit of them, and what comes next: empty at the end. It may name
	// twice what has a file and a draft, and may return none before the end.
	List(ctx context.Context, after string, limit int) (list []Entry, next string, err error)
}

// Draft is a file that is being written. It is used by one goroutine.
type Draft interface {
	// Write adds to the draft. It returns an error that wraps [errNoRoom] rather
	// than to take the room that others need.
	io.Writer

	// Sync makes durable what it can of what was written, and returns up to
	// where one may go on.
	Sync() (int64, error)

	// Commit makes the draft the file, durably.
	Commit() error

	// Close leaves the draft as it is. It does no harm after Commit.
	Close() error
}

// Entry is a file or a draft of a [Place].
type Entry struct {
	Name     string
	Modified time.Time
}

// The errors of places.
var (
	errNoDraft = errors.New("there is no such draft")
	errNoRoom  = errors.New("not enough free space")
)

// probe writes, reads and removes a file.
func probe(ctx context.Context, place Place, name string) (err error) {
	defer func() { err = errors.Join(err, place.Remove(context.WithoutCancel(ctx), name)) }()
	content := []byte("a probe of modelgate, to be removed\n")
	if err := place.Room(int64(len(content))); err != nil {
		return err
	}
	draft, err := place.Draft(ctx, name, 0)
	if err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	defer draft.Close()
	if _, err := draft.Write(content); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	if err := draft.Commit(); err != nil {
		return fmt.Errorf("writing a file: %w", err)
	}
	file, err := place.Open(ctx, name)
	if err != nil {
		return fmt.Errorf("reading a file: %w", err)
	}
	defer file.Close()
	read, err := io.ReadAll(io.LimitReader(file, 1<<10))
	if err == nil && !bytes.Equal(read, content) {
		err = errors.New("it reads otherwise than it was written")
	}
	if err != nil {
		return fmt.Errorf("reading a file: %w", err)
	}
	return nil
}
