package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrGone means that the file of this name has expired or was lost. It is HTTP
// status 410.
var ErrGone = errors.New("the file was kept for at most 7 days and is gone")

// File is a file for a download. It never changes.
type File struct {
	io.ReadSeekCloser

	Name      string    // the segment of its link before the last
	MediaName string    // the last segment of its link, decoded
	Type      string    // a media type of kinds
	Size      int64     // in bytes
	Modified  time.Time // when it was kept, in whole seconds
	GoneAt    time.Time // time of expiry
}

// Open opens the file with a name from a link. The caller closes it; ctx must
// be valid until then. The error is [ErrGone], a fault NOT_FOUND if the name is
// invalid or unknown, or STORE_UNAVAILABLE if the place or the store does not
// answer.
func (a *Archive) Open(ctx context.Context, name string) (*File, error) {
	if !IsName(name) {
		return nil, noFile()
	}
	var rec *record
	err := a.view(ctx, func(r storage.Reader) (err error) {
		rec, err = files.Get(r, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a.open(ctx, rec)
}

// OpenResult is [Archive.Open] for a result of a task by its index. The error is a fault NOT_FOUND if
// the archive has no copy of it, so that the result is at its service.
func (a *Archive) OpenResult(ctx context.Context, task string, index int) (*File, error) {
	var list []*record
	err := a.view(ctx, func(r storage.Reader) (err error) {
		list, err = resultsOf(r, task)
		return err
	})
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(rec *record) bool { return rec.Index == index })
	if i < 0 {
		return nil, noFile()
	}
	return a.open(ctx, list[i])
}

// Discard makes the files of a task expire now, durably. The next Sweep removes them.
func (a *Archive) Discard(ctx context.Context, task string) error {
	return a.update(ctx, func(t storage.Txn) error {
		list, err := resultsOf(t, task)
		if err != nil {
			return err
		}
		for _, rec := range list {
			next := *rec
			if next.End == 0 { // removed already
				continue
			}
			next.End = a.now()
			if next.kept() {
				next.GoneAt = min(next.GoneAt, next.End)
			}
			if err := files.Put(t, rec, &next); err != nil {
				return err
			}
		}
		return nil
	})
}

// GoneAt returns when the file of a link expires. It returns the zero time if the link is not
// one of this archive, such as that of a service.
func (a *Archive) GoneAt(ctx context.Context, link string) (at time.Time, err error) {
	_, rest, found := strings.Cut(link, Path)
	name, _, _ := strings.Cut(rest, "/")
	if !found || !IsName(name) {
		return at, nil
	}
	err = a.view(ctx, func(r storage.Reader) error {
		rec, err := files.Get(r, name)
		if err == nil && rec != nil && rec.kept() {
			at = time.UnixMilli(rec.GoneAt)
		}
		return err
	})
	return at, err
}

func noFile() *fault.Fault { return fault.New(fault.NotFound, "there is no such file") }

// open opens the file of a record; nil: there is none.
func (a *Archive) open(ctx context.Context, rec *record) (*File, error) {
	switch {
	case rec == nil || !rec.kept():
		return nil, noFile()
	case a.now() >= rec.GoneAt:
		return nil, ErrGone
	}
	unavailable := fault.New(fault.StoreUnavailable, "the file cannot be read now; try again later").After(retryAfter)
	place := a.config.Load().Place
	if place == nil {
		a.log.Error("a file cannot be served", zap.String("task_id", rec.Task), zap.Error(errNoPlace))
		return nil, unavailable
	}
	size, err := place.Size(ctx, rec.Name)
	if err == nil && size != rec.Size {
		err = fmt.Errorf("%w: the file has %d bytes, and its record has %d", fs.ErrNotExist, size, rec.Size)
	}
	var content io.ReadSeekCloser
	if err == nil {
		content, err = place.Open(ctx, rec.Name)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.log.Error("a file is lost", zap.String("task_id", rec.Task), zap.Stringer("place", place), zap.Error(err))
		return nil, ErrGone
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		a.log.Error("a file cannot be served", zap.String("task_id", rec.Task), zap.Stringer("place", place), zap.Error(err))
		return nil, unavailable
	}
	return &File{
		ReadSeekCloser: content, Name: rec.Name, MediaName: rec.MediaName, Type: rec.Type, Size: rec.Size,
		Modified: time.UnixMilli(rec.Kept).UTC().Truncate(time.Second), GoneAt: time.UnixMilli(rec.GoneAt).UTC(),
	}, nil
}

// retryAfter is the Retry-After of a place that cannot be reached.
const retryAfter = 10 * time.Second
