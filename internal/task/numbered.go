package task

import (
	"context"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Filter says which tasks of a user are asked for.
type Filter struct {
	Key    string // the id of an API key; empty: of all of his
	Status State  // empty: all
}

// TaskPage returns tasks of a user for somebody who turns pages, latest first:
// limit of them after the first skip, and how many there are in all, those past
// their retention included that are not removed yet. By status it looks at the
// latest 5000 tasks and no further.
func (e *Engine) TaskPage(ctx context.Context, user string, f Filter, skip, limit int) (tasks []*Task, total int, err error) {
	if refused := f.Status.check(); refused != nil {
		return nil, 0, refused
	}
	err = e.view(ctx, func(r storage.Reader) error {
		tasks, total = []*Task{}, 0
		in := ofUser.Under(user)
		if f.Key != "" {
			in = ofKey.Under(f.Key)
			if his, err := isOf(r, f.Key, user); err != nil || !his {
				return err
			}
		}
		all, err := numbered(r, in, func(place int, id string) (more bool, err error) {
			switch {
			case f.Status != "" && place == mostExamined:
				return false, nil
			case f.Status == "" && (place < skip || place >= skip+limit):
				return true, nil
			}
			rec, err := readTask(r, id)
			if err != nil || rec == nil || rec.over() && e.expired(rec.Completed) || f.Status != "" && rec.status() != f.Status {
				return true, err
			}
			if total++; f.Status == "" || total > skip && len(tasks) < limit {
				tasks = append(tasks, rec.task())
			}
			return true, nil
		})
		if f.Status == "" {
			total = all
		}
		return err
	})
	return tasks, total, err
}

// isOf tells whether the tasks of a key are those of a user: a key is one
// user's, so that its first task tells.
func isOf(r storage.Reader, key, user string) (bool, error) {
	first, err := ofKey.Under(key).Keys(r, 1)
	if err != nil || len(first) == 0 {
		return false, err
	}
	rec, err := readTask(r, lastID(first[0]))
	return rec != nil && rec.Key == key && rec.User == user, err
}

// DeliveryPage returns callbacks of a user for somebody who turns pages, latest
// first: limit of them after the first skip, and how many there are in all.
func (e *Engine) DeliveryPage(ctx context.Context, user string, skip, limit int) (list []Delivery, total int, err error) {
	err = e.view(ctx, func(r storage.Reader) (err error) {
		list = []Delivery{}
		total, err = numbered(r, eventsOf.Under(user), func(place int, id string) (more bool, err error) {
			if place < skip || place >= skip+limit {
				return true, nil
			}
			v, err := readEvent(r, id)
			if err == nil && v != nil {
				list = append(list, v.delivery())
			}
			return true, err
		})
		return err
	})
	return list, total, err
}

// numbered is [latestOf] with the place of each id, from 0 on, and returns for how
// many it called fn.
func numbered(r storage.Reader, in table.Range, fn func(place int, id string) (more bool, err error)) (called int, err error) {
	err = latestOf(r, in, nil, func(id string) (more bool, err error) {
		called++
		return fn(called-1, id)
	})
	return called, err
}
