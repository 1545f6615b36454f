package record

import (
	"bytes"
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/storage"
)

// tailSize is the length of the tail of a key in a list: the inverted creation
// time and the id of the task. The order of tails is the same in all lists.
const tailSize = 8 + 1 + IDSize

// Tail returns the end of the keys of a task in the lists.
func (r *Record) Tail() []byte { return storage.Key(storage.Inverted(r.Created), r.ID) }

// Latest yields the ids of the tasks of an owner, latest first. from is the first tail; nil: the
// latest. It skips keys that are not valid. An error ends the sequence.
func Latest(r storage.Reader, owner Owner, from []byte) iter.Seq2[string, error] {
	in := ByUser.Under(owner.user)
	switch {
	case owner == Anyone:
		return latestOfAll(r, from)
	case owner.key != "":
		in = ByKey.Under(owner.key)
	}
	lo, _ := in.Bounds()
	return Tasks.PrimaryKeys(r, in.FromKey(append(bytes.Clone(lo), from...)))
}

// Oldest returns the ids of the tasks of an API key, oldest first. from is the tail from which
// [Latest] would continue: only later tasks are returned. If there are more than limit, it returns
// limit+1 of them.
func Oldest(r storage.Reader, owner Owner, from []byte, limit int) (ids []string, err error) {
	lo, hi := ByKey.Under(owner.key).Bounds()
	if from != nil {
		hi = append(bytes.Clone(lo), from[:min(len(from), tailSize)]...)
	}
	err = r.Scan(lo, hi, func(key, _ []byte) bool {
		if id := LastID(key); id != "" {
			ids = append(ids, id)
		}
		return len(ids) <= limit
	})
	slices.Reverse(ids)
	return ids, err
}

// latestOfAll is [Latest] for all users; only operators use it. There is no index of
// all tasks, which each submission would have to write. So latestOfAll merges the
// lists of the users. That costs [maxPassed] keys and two short scans for each user
// with tasks.
func latestOfAll(r storage.Reader, from []byte) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		lists, err := listsOfUsers(r, from)
		heap.Init(&lists)
		for err == nil && len(lists) > 0 {
			l := lists[0]
			if !yield(LastID(l.tails[0]), nil) {
				return
			}
			if l.tails = l.tails[1:]; len(l.tails) == 0 {
				err = l.read(r)
			}
			if len(l.tails) > 0 {
				heap.Fix(&lists, 0)
			} else {
				heap.Pop(&lists)
			}
		}
		if err != nil {
			yield("", err)
		}
	}
}

// maxPassed is how many keys of one list are read in a row before a new scan seeks the next
// list. To start a scan costs as much as reading some tens of keys.
const maxPassed = 24

// listsOfUsers returns the lists of all users that have tasks, each with its first key.
func listsOfUsers(r storage.Reader, from []byte) (found lists, err error) {
	lo, hi := ByUser.Under().Bounds()
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

// list is the part of one user's list that has been read, latest first.
type list struct {
	user   string
	prefix []byte   // of its keys
	tails  [][]byte // tails of the keys that are read but not yielded yet
	from   []byte   // the first tail that is not read yet
	ahead  int      // how many keys are read next; zero: the list has ended
}

// maxAhead is the maximum number of keys of a list that are read at once.
const maxAhead = 256

// read reads the next keys of a list until one is valid or the list has ended.
func (l *list) read(r storage.Reader) error {
	for l.ahead > 0 && len(l.tails) == 0 {
		keys, err := ByUser.Under(l.user).FromKey(append(bytes.Clone(l.prefix), l.from...)).Keys(r, l.ahead)
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

// lists is a heap of lists, ordered by their first tail.
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

// PageSize returns the number of entries of a page. limit is the requested number; zero is the default.
func PageSize(limit int) (int, error) {
	if limit < 0 || limit > query.MaxPage {
		return 0, fault.At(fault.InvalidParameter, "limit", "limit: %d is not supported; allowed: 1 to %d", limit, query.MaxPage)
	}
	return cmp.Or(limit, query.DefaultPage), nil
}

// Cursor returns the cursor of a task that may be removed before the next page is read.
func (r *Record) Cursor() string { return r.ID + "@" + strconv.FormatInt(r.Created, 10) }

// ParseCursor returns the key tail in a cursor. A forged cursor is harmless: the list only has tasks
// of the owner.
func ParseCursor(after string) (tail []byte, ok bool) {
	id, created, _ := strings.Cut(after, "@")
	at, err := strconv.ParseInt(created, 10, 64)
	return storage.Key(storage.Inverted(at), id), err == nil && len(id) == IDSize
}
