package task

import (
	"context"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrNotFound is the one answer for a task that does not exist, belongs to another owner, is not
// kept any more, or has no route here.
var ErrNotFound = fault.New(fault.TaskNotFound, "there is no such task")

// Get returns a task of an owner. One that is over comes from memory where it
// was asked for before.
func (e *Engine) Get(ctx context.Context, owner record.Owner, id string) (*record.Task, error) {
	if len(id) != record.IDSize {
		return nil, ErrNotFound
	}
	// A task of another owner is read from the store, so that it takes as long as one that does
	// not exist.
	one := e.cache.get(id)
	if one != nil && owner.Owns(one.Detail.Key, one.Detail.User) && !e.expired(one.completed) {
		return one.Task, nil
	}
	rec, err := e.find(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	if rec.Over() {
		e.cache.put(rec)
	}
	return rec.Task(), nil
}

// find reads a task of an owner that is not past its retention.
func (e *Engine) find(ctx context.Context, owner record.Owner, id string) (rec *record.Record, err error) {
	err = e.store.View(ctx, func(r storage.Reader) error {
		rec, err = listed(r, owner, id)
		if err == nil && e.expired(rec.Completed) {
			err = ErrNotFound
		}
		return err
	})
	return rec, err
}

// listed reads a task that is in the lists of an owner, also past its retention until it is
// removed: it may be a cursor.
func listed(r storage.Reader, owner record.Owner, id string) (*record.Record, error) {
	if len(id) != record.IDSize {
		return nil, ErrNotFound
	}
	rec, err := record.Tasks.Get(r, id)
	if err == nil && (rec == nil || !owner.Owns(rec.Key, rec.User)) {
		err = ErrNotFound
	}
	return rec, err
}

// expired reports whether a task that was completed then is past its retention. Zero: it is not over.
func (e *Engine) expired(completed int64) bool {
	return completed != 0 && e.now() >= completed+e.config.Load().Kept.Milliseconds()
}

// MostWait is how long Wait waits at most (docs/reference/tasks.md#query).
const MostWait = 60 * time.Second

// waitLook is how often Wait looks by itself where another process may change the
// task. Over a [storage.Sole] engine only this engine changes it, and wakes Wait.
const waitLook = 5 * time.Second

// Wait returns a task of an owner when its status or its progress has changed,
// when it is over, or when the time has passed.
func (e *Engine) Wait(ctx context.Context, owner record.Owner, id string, most time.Duration) (*record.Task, error) {
	changed, end := e.changes.begin(id)
	first, err := e.Get(ctx, owner, id)
	if err != nil || first.CompletedAt != 0 || most <= 0 {
		end()
		return first, err
	}
	timer := time.NewTimer(min(most, MostWait))
	defer timer.Stop()
	var others <-chan time.Time
	if !e.store.Sole() {
		tick := time.NewTicker(waitLook)
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

// Page says which tasks of a list are asked for.
type Page struct {
	After  string       // the next of the page before, or the id of any task of the owner; empty: from the latest on
	Limit  int          // 1 to 100; zero: 20
	Status record.State // empty: all
}

// Filter says which tasks of a user are asked for.
type Filter struct {
	Key    string       // the id of an API key; empty: all keys of the user
	Status record.State // empty: all
}

// maxExamined bounds what a list by status costs.
const maxExamined = 5000

// checkStatus refuses what is no status that a task is shown as; empty is any.
func checkStatus(s record.State) error {
	switch s {
	case "", record.Queued, record.Pending, record.InProgress, record.Success, record.Failed:
		return nil
	}
	return fault.At(fault.InvalidParameter, "status", "status is queued, pending, in_progress, success or failed, this is %q", string(s))
}

// List returns tasks of an owner, latest first, and whether there are more. A
// list by status looks at a bounded number of tasks, and may so return fewer
// than asked for, none even, though there are more: next is where to go on.
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
		from, err := behind(r, owner, p.After)
		if err != nil {
			return err
		}
		examined, last := 0, ""
		for id, err := range record.Latest(r, owner, from) {
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
			case e.expired(rec.Completed): // there may be others behind it that are not
				last = rec.Cursor()
			default:
				last = id
				if p.Status == "" || rec.Status() == p.Status {
					tasks = append(tasks, rec.Task())
				}
			}
		}
		return nil
	})
	return tasks, next, err
}

// behind returns the key tail from which on a list goes on after a task or a cursor; nil: from the
// latest on.
func behind(r storage.Reader, owner record.Owner, after string) ([]byte, error) {
	if after == "" {
		return nil, nil
	}
	if tail, is := record.ParseCursor(after); is {
		return append(tail, 0), nil
	}
	rec, err := listed(r, owner, after)
	switch {
	case err == ErrNotFound:
		return nil, fault.At(fault.InvalidParameter, "after", "after is the id of a task in this list")
	case err != nil:
		return nil, err
	}
	return append(rec.Tail(), 0), nil
}

// TaskPage returns a numbered page of the tasks of a user, latest first: limit tasks after the
// first skip. total counts all tasks, those past their retention included until they are removed.
// With a status it looks at the latest 5000 tasks only.
func (e *Engine) TaskPage(ctx context.Context, user string, f Filter, skip, limit int) (tasks []*record.Task, total int, err error) {
	if refused := checkStatus(f.Status); refused != nil {
		return nil, 0, refused
	}
	err = e.store.View(ctx, func(r storage.Reader) error {
		tasks, total = []*record.Task{}, 0
		in := record.ByUser.Under(user)
		if f.Key != "" {
			in = record.ByKey.Under(f.Key)
			if own, err := isOf(r, f.Key, user); err != nil || !own {
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

// isOf reports whether a key has tasks and is of a user. All tasks of a key are of one user, so the
// first one decides.
func isOf(r storage.Reader, key, user string) (bool, error) {
	for rec, err := range record.Tasks.Scan(r, record.ByKey.Under(key)) {
		return rec != nil && rec.User == user, err
	}
	return false, nil
}
