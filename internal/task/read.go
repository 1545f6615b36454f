package task

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ErrNotFound is the one answer for a task that does not exist, is another's, is
// not kept any more, or is not shown behind this door.
var ErrNotFound = fault.New(fault.TaskNotFound, "there is no such task")

// Get returns a task of an owner. One that is over comes from memory where it
// was asked for before.
func (e *Engine) Get(ctx context.Context, owner Owner, id string) (*Task, error) {
	if len(id) != idSize {
		return nil, ErrNotFound
	}
	// What is another's takes the way of what does not exist, so that it takes
	// its time too.
	one := e.cache.get(id)
	if one != nil && owner.owns(one.Detail.Key, one.Detail.User) && !e.expired(one.completed) {
		return one.Task, nil
	}
	rec, err := e.find(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	if rec.over() {
		e.cache.put(rec)
	}
	return rec.task(), nil
}

// find reads a task of an owner.
func (e *Engine) find(ctx context.Context, owner Owner, id string) (rec *record, err error) {
	err = e.view(ctx, func(r storage.Reader) error {
		rec, err = e.owned(r, owner, id)
		return err
	})
	return rec, err
}

// listed reads a task that is in the lists of an owner, also past its retention until it is
// removed: it may be a cursor.
func listed(r storage.Reader, owner Owner, id string) (*record, error) {
	if len(id) != idSize {
		return nil, ErrNotFound
	}
	rec, err := readTask(r, id)
	if err == nil && (rec == nil || !owner.owns(rec.Key, rec.User)) {
		err = ErrNotFound
	}
	return rec, err
}

// owned reads a task of an owner, or refuses.
func (e *Engine) owned(r storage.Reader, owner Owner, id string) (*record, error) {
	rec, err := listed(r, owner, id)
	if err == nil && rec.over() && e.expired(rec.Completed) {
		err = ErrNotFound
	}
	return rec, err
}

// expired reports whether a task that was completed then is past its retention.
func (e *Engine) expired(completed int64) bool {
	return e.now() >= completed+e.config.Load().Kept.Milliseconds()
}

// MostWait is how long Wait waits at most (docs/reference/tasks.md#query).
const MostWait = 60 * time.Second

// waitLook is how often Wait looks by itself where another process may change the
// task. Over a [storage.Sole] engine only this engine changes it, and wakes Wait.
const waitLook = 5 * time.Second

// Wait returns a task of an owner when its status or its progress has changed,
// when it is over, or when the time has passed.
func (e *Engine) Wait(ctx context.Context, owner Owner, id string, most time.Duration) (*Task, error) {
	changed, end := e.watch.begin(id)
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
		case <-e.life.Done():
			last = true
		case <-ctx.Done():
			end()
			return nil, ctx.Err()
		}
		end()
		changed, end = e.watch.begin(id)
		now, err := e.Get(ctx, owner, id)
		if err != nil || last || now.Status != first.Status || now.Progress != first.Progress {
			end()
			return now, err
		}
	}
}

// Page says which tasks of a list are asked for.
type Page struct {
	After  string // the next of the page before, or the id of any task of the owner; empty: from the latest on
	Limit  int    // 1 to 100; zero: 20
	Status State  // empty: all
}

// check refuses what is no status that a task is shown as; empty is any.
func (s State) check() error {
	switch s {
	case "", Queued, Pending, InProgress, Success, Failed:
		return nil
	}
	return fault.At(fault.InvalidParameter, "status", "status is queued, pending, in_progress, success or failed, this is %q", string(s))
}

// maxLimit and maxExamined bound what one list costs.
const (
	defaultLimit = 20
	maxLimit     = 100
	maxExamined  = 5000
)

// cursor is where a list continues after a task that may be removed before then.
func (r *record) cursor() string { return r.ID + "@" + strconv.FormatInt(r.Created, 10) }

// parseCursor returns the key tail in a cursor. A made-up cursor is harmless: the list has tasks of
// the owner only.
func parseCursor(after string) (tail []byte, is bool) {
	id, created, _ := strings.Cut(after, "@")
	at, err := strconv.ParseInt(created, 10, 64)
	return storage.Key(storage.Inverted(at), id), err == nil && len(id) == idSize
}

// List returns tasks of an owner, latest first, and whether there are more. A
// list by status looks at a bounded number of tasks, and may so return fewer
// than asked for, none even, though there are more: next is where to go on.
func (e *Engine) List(ctx context.Context, owner Owner, p Page) (tasks []*Task, next string, err error) {
	if refused := p.Status.check(); refused != nil {
		return nil, "", refused
	}
	if p.Limit < 0 || p.Limit > maxLimit {
		return nil, "", fault.At(fault.InvalidParameter, "limit", "limit is 1 to %d, this is %d", maxLimit, p.Limit)
	}
	if p.Limit == 0 {
		p.Limit = defaultLimit
	}
	if owner == (Owner{}) {
		return nil, "", ErrNotFound
	}
	err = e.view(ctx, func(r storage.Reader) error {
		tasks, next = []*Task{}, ""
		var from []byte
		if tail, is := parseCursor(p.After); is {
			from = append(tail, 0)
		} else if p.After != "" {
			rec, err := listed(r, owner, p.After)
			switch {
			case err == ErrNotFound:
				return fault.At(fault.InvalidParameter, "after", "after is the id of a task in this list")
			case err != nil:
				return err
			}
			from = append(rec.tail(), 0)
		}
		examined, last := 0, ""
		return latest(r, owner, from, func(id string) (more bool, err error) {
			if len(tasks) == p.Limit || examined == maxExamined {
				next = last
				return false, nil
			}
			examined++
			rec, err := readTask(r, id)
			if err != nil || rec == nil {
				return true, err
			}
			last = id // also of one that is not kept any more: there may be others behind it that are
			if rec.over() && e.expired(rec.Completed) {
				last = rec.cursor()
				return true, nil
			}
			if p.Status == "" || rec.status() == p.Status {
				tasks = append(tasks, rec.task())
			}
			return true, nil
		})
	})
	return tasks, next, err
}
