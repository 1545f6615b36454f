package task

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrNotFound is the error for a task that does not exist, belongs to another owner or is past its
// retention. Routes use it for all other paths of tasks too.
var ErrNotFound = fault.New(fault.TaskNotFound, "there is no such task")

// Get returns a task of an owner. Finished tasks are cached.
func (e *Engine) Get(ctx context.Context, owner record.Owner, id string) (*record.Task, error) {
	if len(id) != record.IDSize {
		return nil, ErrNotFound
	}
	// A task of another owner is read from the store, so that it takes as long as one that does
	// not exist.
	one := e.cache.get(id)
	if one != nil && !one.hidden && owner.Owns(one.Detail.Key, one.Detail.User) && !e.expired(one.completed) {
		return one.Task, nil
	}
	rec, err := e.readTask(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	if rec.Over() {
		e.cache.put(rec)
	}
	return rec.Task(), nil
}

// readTask reads a task of an owner that is not past its retention.
func (e *Engine) readTask(ctx context.Context, owner record.Owner, id string) (rec *record.Record, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		rec, err = readListed(r, owner, id)
		if err == nil && (e.expired(rec.Completed) || !owner.Sees(rec)) {
			err = ErrNotFound
		}
		return err
	})
	return rec, err
}

// readListed reads a task of an owner, also if it is hidden, or past its retention and not removed
// yet: it may be a cursor.
func readListed(r storage.Reader, owner record.Owner, id string) (*record.Record, error) {
	if len(id) != record.IDSize {
		return nil, ErrNotFound
	}
	rec, err := record.Tasks.Get(r, id)
	if err == nil && (rec == nil || !owner.Owns(rec.Key, rec.User)) {
		err = ErrNotFound
	}
	return rec, err
}

// Job returns the job of a task as it was submitted, for its owner. It is nil if the job was too
// long to be kept with the task, and the task has ended.
func (e *Engine) Job(ctx context.Context, owner record.Owner, id string) (job *backends.Job, err error) {
	rec, err := e.readTask(ctx, owner, id)
	if err != nil || !rec.Enclosed && rec.Over() {
		return nil, err
	}
	found, err := e.job(ctx, rec)
	if errors.Is(err, errNoBody) { // the task has ended meanwhile
		return nil, nil
	}
	return &found, err
}

// expired reports whether a task is past its retention. completed is zero if the task is unfinished.
func (e *Engine) expired(completed int64) bool {
	return completed != 0 && e.now() >= completed+e.config.Load().Kept.Milliseconds()
}

// MaxWait is the maximum time that Wait waits (docs/reference/tasks.md#query).
const MaxWait = 60 * time.Second

// waitInterval is how often Wait reads the task if another process may change it. With a
// [storage.Sole] engine only this process changes the task, and notifies Wait.
const waitInterval = time.Second

// Wait returns a task of an owner when its status or progress has changed, when it
// is finished, or after timeout.
func (e *Engine) Wait(ctx context.Context, owner record.Owner, id string, timeout time.Duration) (*record.Task, error) {
	changed, end := e.changes.begin(id)
	first, err := e.Get(ctx, owner, id)
	if err != nil || first.CompletedAt != 0 || timeout <= 0 {
		end()
		return first, err
	}
	timer := time.NewTimer(min(timeout, MaxWait))
	defer timer.Stop()
	var others <-chan time.Time
	if !e.store.Sole() {
		tick := time.NewTicker(waitInterval)
		defer tick.Stop()
		others = tick.C
	}
	for last := false; ; {
		select {
		case <-changed:
		case <-others:
		case <-timer.C:
			last = true
		case <-e.store.Life.Done():
			last = true
		case <-ctx.Done():
			end()
			return nil, ctx.Err()
		}
		end()
		changed, end = e.changes.begin(id)
		now, err := e.Get(ctx, owner, id)
		if err != nil || last || now.Status != first.Status || now.Progress != first.Progress {
			end()
			return now, err
		}
	}
}

// Page selects a part of a list of tasks.
type Page struct {
	After  string       // the cursor of the previous page, or the id of a task of the owner; empty: from the latest
	Limit  int          // 1 to 100; zero: 20
	Status record.State // empty: all

	Makes  backends.MediaType // only tasks that make this; empty: all
	Oldest bool               // oldest first, and only of an API key
}

// matches reports whether a task is in the list.
func (p *Page) matches(rec *record.Record) bool {
	return (p.Status == "" || rec.Status() == p.Status) && (p.Makes == "" || rec.Kind.Makes() == p.Makes)
}

// Filter selects tasks of a user.
type Filter struct {
	Key    string       // the id of an API key; empty: all keys of the user
	Status record.State // empty: all
}

// maxExamined is how many tasks a list reads that selects some of them, or begins with the oldest.
const maxExamined = 5000

// checkStatus returns an error unless s is a status that callers see, or empty.
func checkStatus(s record.State) error {
	switch s {
	case "", record.Queued, record.Pending, record.InProgress, record.Success, record.Failed:
		return nil
	}
	return fault.At(fault.InvalidParameter, "status", "status is queued, pending, in_progress, success or failed, this is %q", string(s))
}

// List returns tasks of an owner and the cursor of the next page (empty: there
// are no more tasks). A list that selects tasks reads at most maxExamined of
// them. So a page with a cursor may have fewer tasks than requested, or none.
func (e *Engine) List(ctx context.Context, owner record.Owner, p Page) (tasks []*record.Task, next string, err error) {
	if refused := checkStatus(p.Status); refused != nil {
		return nil, "", refused
	}
	if p.Limit, err = record.PageSize(p.Limit); err != nil {
		return nil, "", err
	}
	if owner == (record.Owner{}) {
		return nil, "", ErrNotFound
	}
	err = e.store.View(ctx, func(r storage.Reader) error {
		tasks, next = []*record.Task{}, ""
		from, err := keyAfter(r, owner, p.After)
		if err != nil {
			return err
		}
		ids := record.Latest(r, owner, from)
		if p.Oldest {
			if ids, err = oldest(r, owner, from); err != nil {
				return err
			}
		}
		examined, last := 0, ""
		for id, err := range ids {
			if err != nil {
				return err
			}
			if len(tasks) == p.Limit || examined == maxExamined {
				next = last
				break
			}
			examined++
			rec, err := record.Tasks.Get(r, id)
			switch {
			case err != nil:
				return err
			case rec == nil:
			case e.expired(rec.Completed), !owner.Sees(rec): // later entries may be in the list
				last = rec.Cursor()
			default:
				last = id
				if p.matches(rec) {
					tasks = append(tasks, rec.Task())
				}
			}
		}
		return nil
	})
	return tasks, next, err
}

// oldest returns the ids of the tasks of an API key, oldest first. from is that of [record.Latest].
// It refuses a key with more than maxExamined of them, because the store only scans from the latest.
func oldest(r storage.Reader, owner record.Owner, from []byte) (iter.Seq2[string, error], error) {
	ids, err := record.Oldest(r, owner, from, maxExamined)
	if err == nil && len(ids) > maxExamined {
		err = fault.At(fault.InvalidParameter, "order", "`order` asc is for at most %d tasks, and this API key has more; leave it out", maxExamined)
	}
	return func(yield func(string, error) bool) {
		for _, id := range ids {
			if !yield(id, nil) {
				return
			}
		}
	}, err
}

// keyAfter returns the key tail at which a list continues after a task or a cursor; nil: from the
// latest.
func keyAfter(r storage.Reader, owner record.Owner, after string) ([]byte, error) {
	if after == "" {
		return nil, nil
	}
	if tail, is := record.ParseCursor(after); is {
		return append(tail, 0), nil
	}
	rec, err := readListed(r, owner, after)
	switch {
	case err == ErrNotFound:
		return nil, fault.At(fault.InvalidParameter, "after", "after is the id of a task in this list")
	case err != nil:
		return nil, err
	}
	return append(rec.Tail(), 0), nil
}

// TaskPage returns limit tasks of a user after the first skip, latest first. total counts all tasks,
// including those past their retention that are not removed yet. With a status it reads only the
// latest 5000 tasks.
func (e *Engine) TaskPage(ctx context.Context, user string, f Filter, skip, limit int) (tasks []*record.Task, total int, err error) {
	if refused := checkStatus(f.Status); refused != nil {
		return nil, 0, refused
	}
	err = e.store.View(ctx, func(r storage.Reader) error {
		tasks, total = []*record.Task{}, 0
		in := record.ByUser.Under(user)
		if f.Key != "" {
			in = record.ByKey.Under(f.Key)
			if ok, err := keyIsOf(r, f.Key, user); err != nil || !ok {
				return err
			}
		}
		if f.Status == "" {
			page, all, err := record.Tasks.Page(r, in, int64(skip), int64(limit), math.MaxInt64)
			for _, rec := range page {
				if !e.expired(rec.Completed) {
					tasks = append(tasks, rec.Task())
				}
			}
			total = int(all)
			return err
		}
		examined := 0
		for rec, err := range record.Tasks.Scan(r, in) {
			if examined++; err != nil || examined > maxExamined {
				return err
			}
			if e.expired(rec.Completed) || rec.Status() != f.Status {
				continue
			}
			if total++; total > skip && len(tasks) < limit {
				tasks = append(tasks, rec.Task())
			}
		}
		return nil
	})
	return tasks, total, err
}

// keyIsOf reports whether a key has tasks and belongs to a user. All tasks of a key belong to one
// user, so the first one decides.
func keyIsOf(r storage.Reader, key, user string) (bool, error) {
	for rec, err := range record.Tasks.Scan(r, record.ByKey.Under(key)) {
		return rec != nil && rec.User == user, err
	}
	return false, nil
}

// Unfinished returns up to limit unfinished tasks of an owner, oldest first. more reports whether
// the owner has others.
func (e *Engine) Unfinished(ctx context.Context, owner record.Owner, limit int) (list []*record.Task, more bool, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		list, more = []*record.Task{}, false
		for rec, err := range record.Tasks.Scan(r, record.Due.Under()) {
			if err != nil {
				return err
			}
			if rec.Over() || !owner.Owns(rec.Key, rec.User) {
				continue
			}
			if more = len(list) == limit; more {
				return nil
			}
			list = append(list, rec.Task())
		}
		return nil
	})
	slices.SortFunc(list, func(a, b *record.Task) int {
		return cmp.Or(cmp.Compare(a.CreatedAt, b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	return list, more, err
}
