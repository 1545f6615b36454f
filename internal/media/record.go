package media

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// record is a file at media/<name>. Times are Unix milliseconds; zero is none.
type record struct {
	Name    string `json:"name"`
	Task    string `json:"task"`
	Index   int    `json:"index"` // of the result among those of the task
	Key     string `json:"key"`
	User    string `json:"user"`
	Created int64  `json:"created"` // when the name was drawn

	// Draft is how far the copy is; the zero value when it is made.
	Draft progress `json:"draft,omitzero"`

	// What follows is set when the file is kept.
	MediaName string `json:"media_name,omitempty"`
	Type      string `json:"type,omitempty"`
	Size      int64  `json:"size,omitempty"`
	Kept      int64  `json:"kept,omitempty"`
	GoneAt    int64  `json:"gone_at,omitempty"` // from then on it is refused

	// End is when the file, or the draft, is to be removed; zero when it has been.
	End int64 `json:"end,omitempty"`

	fresh bool // the name was drawn just now: nothing lies there
}

// progress is what it takes to go on with a draft.
type progress struct {
	Durable   int64  `json:"durable,omitempty"`   // bytes that are there
	Source    string `json:"source,omitempty"`    // hash of the address they came from
	Validator string `json:"validator,omitempty"` // of If-Range
	Total     int64  `json:"total,omitempty"`     // size of the result; -1: not told
	Type      string `json:"type,omitempty"`      // the media type, by the first bytes

	// Refused is the bound that the result was larger than. It is not asked for
	// again unless the bound is another.
	Refused int64 `json:"refused,omitempty"`
}

// kept tells whether the file is there for good, until it is gone.
func (r *record) kept() bool { return r.Kept != 0 }

// Keys of the store. Integers are eight bytes, big-endian. An index has no value.
//
//	media/<name>                    files
//	mediatask/<task>/<index>/<name> those of a task, in the order of its results
//	mediaend/<time>/<name>          when the file or its draft is to be removed
//	mediapast/<kept>/<name>         those whose file was removed, by when it was kept
const (
	filePrefix = "media"
	taskPrefix = "mediatask"
	endPrefix  = "mediaend"
	pastPrefix = "mediapast"
)

// indexes are the keys that lead to a record, and follow from it; none when it is
// nil.
func (r *record) indexes() [][]byte {
	if r == nil {
		return nil
	}
	keys := [][]byte{storage.Key(taskPrefix, r.Task, int64(r.Index), r.Name)}
	switch {
	case r.End != 0:
		keys = append(keys, storage.Key(endPrefix, r.End, r.Name))
	case r.kept():
		keys = append(keys, storage.Key(pastPrefix, r.Kept, r.Name))
	}
	return keys
}

// nameIn is the name that ends an index; empty when it is too short for one.
func nameIn(index []byte) string {
	if len(index) <= nameDigits {
		return ""
	}
	return string(index[len(index)-nameDigits:])
}

// read returns the record of a name, or nil.
func read(r storage.Reader, name string) (*record, error) {
	rec := new(record)
	found, err := storage.GetRecord(r, storage.Key(filePrefix, name), rec)
	if err != nil || !found {
		return nil, err
	}
	return rec, nil
}

// replace writes next, or nothing, where have was, or nothing, with all that
// leads to it.
func replace(t storage.Txn, have, next *record) error {
	if err := storage.Reindex(t, have.indexes(), next.indexes()); err != nil {
		return err
	}
	if next == nil {
		return t.Delete(storage.Key(filePrefix, have.Name))
	}
	return storage.SetRecord(t, storage.Key(filePrefix, next.Name), next)
}

// change writes what fn makes of a record. Where the record is gone, or fn
// returns false, nothing is changed and the result is nil.
func change(t storage.Txn, name string, fn func(r *record) bool) (*record, error) {
	have, err := read(t, name)
	if err != nil || have == nil {
		return nil, err
	}
	next := *have
	if !fn(&next) {
		return nil, nil
	}
	return &next, replace(t, have, &next)
}

// ofTask returns the records of a task's results, in their order.
func ofTask(r storage.Reader, task string) (list []*record, err error) {
	lo, hi := storage.Below(taskPrefix, task)
	var names []string
	if err := r.Scan(lo, hi, func(key, _ []byte) bool {
		names = append(names, nameIn(key))
		return true
	}); err != nil {
		return nil, err
	}
	for _, name := range names {
		rec, err := read(r, name)
		if err != nil {
			return nil, err
		}
		if rec != nil {
			list = append(list, rec)
		}
	}
	return list, nil
}

// names returns the names that the indexes between lo and hi lead to, at most
// limit of them.
func names(r storage.Reader, lo, hi []byte, limit int) (list []string, err error) {
	err = r.Scan(lo, hi, func(key, _ []byte) bool {
		list = append(list, nameIn(key))
		return len(list) < limit
	})
	return list, err
}

// view and update are those of the store, whose failure is a fault.
func (a *Archive) view(ctx context.Context, fn func(storage.Reader) error) error {
	return a.silent(ctx, a.store.View(ctx, fn))
}

func (a *Archive) update(ctx context.Context, fn func(storage.Txn) error) error {
	return a.silent(ctx, a.store.Update(ctx, fn))
}

// silent tells a caller that the store does not answer, and not why.
func (a *Archive) silent(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if _, refused := errors.AsType[*fault.Fault](err); refused {
		return err
	}
	a.log.Error("the store of media does not answer", zap.Error(err))
	return fmt.Errorf("%w: %w", fault.New(fault.StoreUnavailable, "the store does not answer").After(5*time.Second), err)
}

func milliseconds(t time.Time) int64 { return t.UnixMilli() }

func (a *Archive) now() int64 { return milliseconds(a.store.Now()) }
