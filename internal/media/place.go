package media

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Place stores files: see [Dir] and [S3]. [IsName] accepts the name of a file. A
// file is written once and never changed. Methods may be called concurrently for
// different names; for one name, only reads may be concurrent.
type Place interface {
	// String returns the location, for operators.
	String() string

	// Prepare makes the place ready. Each configuration calls it.
	Prepare() error

	// CheckSpace returns an error if there is no space for size more bytes.
	CheckSpace(size int64) error

	// Draft begins the file of a name, or continues its draft after the first
	// from bytes. It returns an error that wraps [errNoDraft] if the draft is
	// shorter. Writes fail when ctx ends.
	Draft(ctx context.Context, name string, from int64) (Draft, error)

	// Size returns the size of a file. The error is [fs.ErrNotExist] if there
	// is none; a draft does not count.
	Size(ctx context.Context, name string) (int64, error)

	// Open opens a file. ctx is valid as long as the file is read. The error is
	// [fs.ErrNotExist] if there is none.
	Open(ctx context.Context, name string) (io.ReadSeekCloser, error)

	// Remove removes the file and the draft of a name, if they exist.
	Remove(ctx context.Context, name string) error

	// List returns about limit files and drafts after a name or a cursor. next is
	// the cursor of the next List, empty at the end. List may return a name twice
	// if it has a file and a draft, and may return none before the end.
	List(ctx context.Context, after string, limit int) (list []Entry, next string, err error)
}

// Draft is a file that is being written, by one goroutine.
type Draft interface {
	// Write adds to the draft. It returns an error that wraps [errNoSpace] if
	// the bytes would use space that must stay free.
	io.Writer

	// Sync makes bytes durable, and returns the offset from which the draft can
	// be continued.
	Sync() (int64, error)

	// Commit durably turns the draft into the file.
	Commit() error

	// Close closes the draft without a change. It has no effect after Commit.
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
	errNoSpace = errors.New("not enough free space")
)

// probe writes, reads and removes a file.
func probe(ctx context.Context, place Place, name string) (err error) {
	defer func() { err = errors.Join(err, place.Remove(context.WithoutCancel(ctx), name)) }()
	content := []byte("test file of modelgate\n")
	if err := place.CheckSpace(int64(len(content))); err != nil {
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
		err = errors.New("the content differs from what was written")
	}
	if err != nil {
		return fmt.Errorf("reading a file: %w", err)
	}
	return nil
}
