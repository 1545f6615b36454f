package task

import (
	"bytes"
	"cmp"
	"container/heap"
	"context"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// tailSize is the length of what ends the key of a task in a list: when it was
// created, counted down, and its id. By it tasks of all lists are in one order.
const tailSize = 8 + 1 + idSize

// tail ends the key of a task in each list that it is in.
func (r *record) tail() []byte { return storage.Key(storage.Inverted(r.Created), r.ID) }

// latest calls fn for the id of each task of an owner, latest first, until fn
// wants no more. from is where the tails begin; nil: the latest of all. What is in
// no list by a key of its form is left out.
func latest(r storage.Reader, owner Owner, from []byte, fn func(id string) (more bool, err error)) error {
	switch {
	case owner == Anyone:
		return latestOfAll(r, from, fn)
	case owner.key != "":
		return latestOf(r, ofKey.Under(owner.key), from, fn)
	}
	return latestOf(r, ofUser.Under(owner.user), from, fn)
}

// latestOf is [latest] of one list.
func latestOf(r storage.Reader, in table.Range, from []byte, fn func(id string) (more bool, err error)) (err error) {
	prefix, hi := in.Bounds()
	wrong := r.Scan(append(bytes.Clone(prefix), from...), hi, func(key, _ []byte) (more bool) {
		if len(key) != len(prefix)+tailSize {
			return true
		}
		more, err = fn(lastID(key))
		return more && err == nil
	})
	return cmp.Or(wrong, err)
}

// latestOfAll is [latest] of all tasks. It is for operators: rather than that each
// submission writes a key of a list of all, those of the users are read side by
// side, which costs [maxPassed] keys and two short scans for each user who has tasks.
func latestOfAll(r storage.Reader, from []byte, fn func(id string) (more bool, err error)) error {
	lists, err := listsOfUsers(r, from)
	if err != nil {
		return err
	}
	heap.Init(&lists)
	for len(lists) > 0 {
		l := lists[0]
		if more, err := fn(lastID(l.tails[0])); err != nil || !more {
			return err
		}
		if l.tails = l.tails[1:]; len(l.tails) == 0 {
			if err := l.read(r); err != nil {
				return err
			}
		}
		if len(l.tails) > 0 {
			heap.Fix(&lists, 0)
		} else {
			heap.Pop(&lists)
		}
	}
	return nil
}

// maxPassed is how many keys in a row are read of one list rather than that the
// next is looked for: a scan that begins costs as much as some tens of keys.
const maxPassed = 24

// listsOfUsers are the lists of all users that have tasks, with the first of each.
func listsOfUsers(r storage.Reader, from []byte) (found lists, err error) {
	lo, hi := ofUser.Under().Bounds()
	all := len(lo)
	l, passed := &list{prefix: hi}, 0
	for lo != nil && err == nil {
		at := lo
		lo = nil
		err = r.Scan(at, hi, func(key, _ []byte) (more bool) {
			if !bytes.HasPrefix(key, l.prefix) {
				name := bytes.IndexByte(key[all:], '/')
				if name < 0 {
					return true
				}
				l, passed = &list{user: string(key[all : all+name]), prefix: bytes.Clone(key[:all+name+1])}, 0
			}
			tail := key[len(l.prefix):]
			if len(l.tails) == 0 && len(tail) == tailSize && bytes.Compare(tail, from) >= 0 {
				l.tails, l.from, l.ahead = [][]byte{bytes.Clone(tail)}, append(bytes.Clone(tail), 0), 16
				found = append(found, l)
			}
			if passed++; passed < maxPassed {
				return true
			}
			passed = 0
			if lo = storage.PrefixEnd(l.prefix); len(l.tails) == 0 {
				lo = append(bytes.Clone(l.prefix), from...)
				if bytes.Compare(lo, key) <= 0 {
					lo = append(bytes.Clone(key), 0)
				}
			}
			return false
		})
	}
	return found, err
}

// list is one list of tasks, latest first, as far as it has been read.
type list struct {
	user   string
	prefix []byte   // of its keys
	tails  [][]byte // what ends the keys that are read and not taken yet
	from   []byte   // the tail from which on there may be more
	ahead  int      // how many keys are read next; zero: none is left
}

// maxAhead is how many keys of a list are read at once.
const maxAhead = 256

// read reads the next keys of a list, at least one of a task if there is any.
func (l *list) read(r storage.Reader) error {
	for l.ahead > 0 && len(l.tails) == 0 {
		keys, err := ofUser.Under(l.user).FromKey(append(bytes.Clone(l.prefix), l.from...)).Keys(r, l.ahead)
		if err != nil {
			return err
		}
		for _, key := range keys {
			l.from = append(bytes.Clone(key[len(l.prefix):]), 0)
			if len(key) == len(l.prefix)+tailSize {
				l.tails = append(l.tails, key[len(l.prefix):])
			}
		}
		if len(keys) < l.ahead {
			l.ahead = 0
		}
		l.ahead = min(16*l.ahead, maxAhead)
	}
	return nil
}

// lists are in the order of what is first in each.
type lists []*list

// The five methods implement heap.Interface.
func (s lists) Len() int           { return len(s) }
func (s lists) Less(i, j int) bool { return bytes.Compare(s[i].tails[0], s[j].tails[0]) < 0 }
func (s lists) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *lists) Push(l any)        { *s = append(*s, l.(*list)) }
func (s *lists) Pop() (l any) {
	last := len(*s) - 1
	l, *s = (*s)[last], (*s)[:last]
	return l
}

// Filter says which tasks of a user are asked for.
type Filter struct {
	Key    string // the id of an API key; empty: all keys of the user
	Status State  // empty: all
}

// TaskPage returns a numbered page of the tasks of a user, latest first: limit tasks after the
// first skip. total counts all tasks, those past their retention included until they are removed.
// With a status it looks at the latest 5000 tasks only.
func (e *Engine) TaskPage(ctx context.Context, user string, f Filter, skip, limit int) (tasks []*Task, total int, err error) {
	if refused := f.Status.check(); refused != nil {
		return nil, 0, refused
	}
	err = e.view(ctx, func(r storage.Reader) error {
		tasks, total = []*Task{}, 0
		in := ofUser.Under(user)
		if f.Key != "" {
			in = ofKey.Under(f.Key)
			if own, err := isOf(r, f.Key, user); err != nil || !own {
				return err
			}
		}
		all, err := numbered(r, in, func(place int, id string) (more bool, err error) {
			switch {
			case f.Status != "" && place == maxExamined:
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

// isOf reports whether a key has tasks and is of a user. All tasks of a key are of one user, so the
// first one decides.
func isOf(r storage.Reader, key, user string) (bool, error) {
	first, err := ofKey.Under(key).Keys(r, 1)
	if err != nil || len(first) == 0 {
		return false, err
	}
	rec, err := readTask(r, lastID(first[0]))
	return rec != nil && rec.Key == key && rec.User == user, err
}

// CallbackPage returns a numbered page of the callbacks of a user, latest first: limit callbacks
// after the first skip, and how many there are in all.
func (e *Engine) CallbackPage(ctx context.Context, user string, skip, limit int) (list []Callback, total int, err error) {
	err = e.view(ctx, func(r storage.Reader) (err error) {
		list = []Callback{}
		total, err = numbered(r, eventsOf.Under(user), func(place int, id string) (more bool, err error) {
			if place < skip || place >= skip+limit {
				return true, nil
			}
			v, err := readEvent(r, id)
			if err == nil && v != nil {
				list = append(list, v.callback())
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

// Callbacks returns callbacks of a user, latest first; after is the task of the
// last one before, empty to begin with the latest. next is where to go on, empty
// when there are no more.
func (e *Engine) Callbacks(ctx context.Context, user, after string, limit int) (list []Callback, next string, err error) {
	if limit < 0 || limit > maxLimit {
		return nil, "", fault.At(fault.InvalidParameter, "limit", "limit is 1 to %d, this is %d", maxLimit, limit)
	}
	if limit == 0 {
		limit = defaultLimit
	}
	err = e.view(ctx, func(r storage.Reader) error {
		list, next = []Callback{}, ""
		var from []byte
		if after != "" {
			v, err := readEvent(r, after)
			if err != nil {
				return err
			}
			if v == nil || v.User != user {
				return fault.At(fault.InvalidParameter, "after", "after is the task of a callback in this list")
			}
			from = append(storage.Key(storage.Inverted(v.Created), v.Task), 0)
		}
		return latestOf(r, eventsOf.Under(user), from, func(id string) (more bool, err error) {
			v, err := readEvent(r, id)
			switch {
			case err != nil || v == nil: // what is gone is no place to go on from
				return true, err
			case len(list) == limit:
				next = list[limit-1].Task
				return false, nil
			}
			list = append(list, v.callback())
			return true, nil
		})
	})
	return list, next, err
}
