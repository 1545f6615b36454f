package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

const (
	// keepFor is the maximum duration of one Keep. The next Keep continues its
	// copies.
	keepFor = time.Hour

	// draftFor is how long a draft is kept. It is longer than the retries of the
	// task engine, which take an hour plus one Keep.
	draftFor = 4 * time.Hour
)

// Keep copies the results of a task and returns the links to the copies. It
// implements [task.Keeper]. Its error is for the operator's log: it may name
// hosts, and contains no link.
func (a *Archive) Keep(ctx context.Context, k task.Keeping) ([]string, error) {
	c := a.config.Load()
	if c.Place == nil {
		return nil, errNoPlace
	}
	unlock, err := a.work.Lock(ctx, k.Task)
	if err != nil {
		return nil, err
	}
	defer unlock()
	files, err := a.ensureRecords(ctx, k)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, keepFor)
	defer cancel()
	errs := make([]error, len(files))
	var copies sync.WaitGroup
	for i, rec := range files {
		copies.Go(func() { files[i], errs[i] = a.keep(ctx, c, k, rec) })
	}
	copies.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	links := make([]string, len(files))
	for i, rec := range files {
		links[i] = link(c.BaseURL, rec.Name, rec.MediaName)
	}
	return links, nil
}

// ensureRecords returns the records of a task's results, one for each, and creates
// those that are missing.
func (a *Archive) ensureRecords(ctx context.Context, k task.Keeping) (results []*record, err error) {
	var left []*record // drafts of other nodes
	complete := func(r storage.Reader) (bool, error) {
		have, err := resultsOf(r, k.Task)
		results = make([]*record, len(k.Results))
		left = nil
		for _, rec := range have {
			switch {
			case rec.Index >= len(results):
			case !rec.kept() && rec.Epoch != a.store.Epoch():
				left = append(left, rec) // a node that was stopped may continue and write this draft
			default:
				results[rec.Index] = rec
			}
		}
		return !slices.Contains(results, nil), err
	}
	var done bool
	err = a.view(ctx, func(r storage.Reader) (err error) {
		done, err = complete(r)
		return err
	})
	if err != nil || done {
		return results, err
	}
	err = a.update(ctx, func(t storage.Txn) error {
		if done, err := complete(t); err != nil || done {
			return err
		}
		now := a.now()
		for _, rec := range left {
			if err := files.Put(t, rec, nil); err != nil {
				return err
			}
		}
		for i := range results {
			if results[i] != nil {
				continue
			}
			results[i] = &record{
				Name: newName(), Task: k.Task, Index: i, Key: k.Key, User: k.User, Created: now, End: now + draftFor.Milliseconds(), Epoch: a.store.Epoch(),
			}
			results[i].fresh = true
			if err := files.Put(t, nil, results[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if place := a.config.Load().Place; err == nil && place != nil {
		for _, rec := range left {
			if err := place.Remove(ctx, rec.Name); err != nil {
				a.log.Warn("the draft of a gateway that has ended was not removed; the sweep removes it", zap.Error(err))
			}
		}
	}
	return results, err
}

// maxCopies is the maximum number of concurrent copies from one backend, over all
// tasks. So a slow backend does not delay the copies of others.
const maxCopies = 16

// keep keeps one result and returns its record.
func (a *Archive) keep(ctx context.Context, c *config, k task.Keeping, rec *record) (*record, error) {
	if rec.kept() {
		if a.now() >= rec.GoneAt {
			return nil, fmt.Errorf("result %d: its copy is older than %v", rec.Index+1, Retention)
		}
		return rec, nil
	}
	stored, _ := a.slots.LoadOrStore(k.Backend, limit.NewSemaphore(maxCopies))
	slots := stored.(limit.Semaphore)
	if err := slots.Acquire(ctx); err != nil {
		return nil, err
	}
	defer slots.Release()
	next, err := a.copy(ctx, c, k, rec)
	if err != nil {
		a.failures.Add(1)
		return nil, fmt.Errorf("result %d: %w", rec.Index+1, err)
	}
	return next, nil
}

// copy makes the file of a record. If the file exists already, because the
// process ended before the record was updated, copy only updates the record.
func (a *Archive) copy(ctx context.Context, c *config, k task.Keeping, rec *record) (*record, error) {
	size, err := c.Place.Size(ctx, rec.Name)
	switch {
	case err == nil:
		fileKind, err := kindAt(ctx, c.Place, rec.Name)
		if err != nil {
			return nil, err
		}
		return a.recordKept(ctx, k, rec, fileKind, size)
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	d := &download{archive: a, config: c, record: rec, source: sourceOf(c, k, rec.Index)}
	defer d.close()
	if err := d.run(ctx); err != nil {
		return nil, err
	}
	return a.recordKept(ctx, k, rec, d.kind, d.written)
}

// kindAt returns the kind of an existing file.
func kindAt(ctx context.Context, place Place, name string) (kind, error) {
	file, err := place.Open(ctx, name)
	if err != nil {
		return kind{}, err
	}
	defer file.Close()
	head := make([]byte, sniffBytes)
	n, err := io.ReadFull(file, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return kind{}, err
	}
	return sniff(head[:n])
}

// recordKept records that a file is kept.
func (a *Archive) recordKept(ctx context.Context, k task.Keeping, rec *record, fileKind kind, size int64) (kept *record, err error) {
	err = a.update(ctx, func(t storage.Txn) (err error) {
		kept, err = files.Change(t, table.Key{rec.Name}, func(r *record) bool {
			if r.kept() {
				return true
			}
			now := a.store.Now()
			r.Draft = progress{}
			r.MediaName, r.Type, r.Size = mediaName(k.MediaName, r.Index, fileKind), fileKind.media, size
			r.Kept, r.GoneAt = milliseconds(now), milliseconds(now.Add(Retention))
			r.End = r.GoneAt
			return true
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case kept == nil:
		return nil, errors.New("the record of the file was removed during the copy")
	}
	a.copies.Add(1)
	a.bytes.Add(uint64(size))
	return kept, nil
}
