package badger

import (
	"bytes"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// rows are values that were read lately, by key. A read of the tree looks into
// every level that may have the key, and there are the more of them the more is
// stored; a read from here costs the same whatever is.
//
// A commit takes the keys out that it writes before it gets its time, and puts
// those back that were there, as it has written them. So what a snapshot finds
// here is what it would find in the tree, if only it is not earlier than the one
// in which that was read or written. What was read is kept only while no commit
// has begun to write it since before its snapshot: else it could be what that one
// took out.
type rows struct {
	begun  atomic.Uint64           // commits
	ended  atomic.Uint64           // commits: a snapshot that is taken now sees them
	last   [rowSlots]atomic.Uint64 // the last commit that has written a key of the slot
	listed families
	seed   maphash.Seed
	shards [rowShards]rowShard
}

const (
	rowShards = 64

	// rowSlots is in how many slots it is noted which keys were written: more
	// than a commit has keys by far, so that few are taken for others.
	rowSlots = 1 << 16

	// rowCost is about what a row takes beside its key and value, in bytes.
	rowCost = 128
)

// rowShard holds two generations. When the young one is full it becomes the old
// one, whose rows go but for those that were asked for meanwhile.
type rowShard struct {
	mu         sync.Mutex
	young, old map[string]row
	used       int // by the young ones, in bytes
	most       int
}

// row is a value, nil where the key is absent, or a list. It is never changed.
type row struct {
	val     []byte
	list    []pair
	expires uint64 // Unix seconds; zero: never
	at      uint64 // the time of the snapshot in which it was read
}

// pair is a key and its value.
type pair struct{ key, val []byte }

func (one *row) size() int {
	size := rowCost + len(one.val)
	for _, p := range one.list {
		size += rowCost + len(p.key) + len(p.val)
	}
	return size
}

func newRows(most int64) *rows {
	r := &rows{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].most = int(most) / rowShards / 2
	}
	return r
}

// place returns where a key is kept, and where its commits are noted.
func (r *rows) place(key []byte) (*rowShard, *atomic.Uint64) {
	hash := maphash.Bytes(r.seed, key)
	return &r.shards[hash%rowShards], &r.last[hash>>8%rowSlots]
}

// get returns what a key has in the snapshot of a time, and whether that is
// known. Of an expired one nothing is.
func (r *rows) get(key []byte, at uint64) (one row, known bool) {
	s, _ := r.place(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	found, known := s.young[string(key)]
	if !known {
		if found, known = s.old[string(key)]; known {
			delete(s.old, string(key))
			s.put(string(key), found)
		}
	}
	if !known || found.at > at || found.expires != 0 && uint64(time.Now().Unix()) >= found.expires {
		return row{}, false
	}
	return found, true
}

// keep keeps what was read, where era is how many commits had ended before the
// snapshot. It must not be changed any more.
func (r *rows) keep(key []byte, one row, era uint64) {
	s, last := r.place(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.Load() <= era {
		s.put(string(key), one)
	}
}

// keepList keeps what a scan of a folder has found, where no commit has begun
// since.
func (r *rows) keepList(folder []byte, list row, era uint64) {
	r.listed.add(folder)
	name := appendListName(nil, folder)
	s, _ := r.place(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.begun.Load() == era { // a later one will find that there are lists of this family
		s.put(string(name), list)
	}
}

// put puts a row among the young ones; the caller holds the lock.
func (s *rowShard) put(key string, one row) {
	size := len(key) + one.size()
	if size > s.most/8 {
		return
	}
	if s.used += size; s.used > s.most || s.young == nil {
		s.old, s.young, s.used = s.young, make(map[string]row), size
	}
	s.young[key] = one
}

// change is a key that a commit writes.
type change struct {
	key, val []byte // val is nil when it is deleted
	expires  uint64 // Unix seconds; zero: never
	known    bool   // its value was among the rows
}

// begin begins a commit that makes these changes.
func (r *rows) begin(changes []change) {
	commit := r.begun.Add(1)
	var name []byte
	for i := range slices.Backward(changes) { // of a key that is written twice the last counts
		c := &changes[i]
		c.known = r.drop(c.key, commit)
		if !r.listed.have(c.key) {
			continue
		}
		for i, b := range c.key {
			if b == '/' {
				name = appendListName(name[:0], c.key[:i+1])
				r.drop(name, commit)
			}
		}
	}
}

// drop takes a key out for a commit, and tells whether a value was there.
func (r *rows) drop(key []byte, commit uint64) (known bool) {
	s, last := r.place(key)
	last.Store(commit)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, generation := range [...]map[string]row{s.young, s.old} {
		if one, found := generation[string(key)]; found {
			known = known || one.val != nil
			delete(generation, string(key))
		}
	}
	return known
}

// end ends it. at is the time of the first snapshot that sees the changes, and
// zero when there may be none. What was asked for is kept as it is now; what was
// not there before is mostly a record that is made once and read by nobody soon.
func (r *rows) end(changes []change, at uint64) {
	for _, c := range changes {
		if at != 0 && c.known && c.val != nil {
			s, _ := r.place(c.key)
			s.mu.Lock()
			s.put(string(c.key), row{val: c.val, expires: c.expires, at: at})
			s.mu.Unlock()
		}
	}
	r.ended.Store(r.begun.Load())
}

// A list is what a scan of a folder has found: of all keys that begin with a
// path up to a slash. A commit takes out those of all folders that a key which
// it writes lies in, if there have been lists of such keys: of most there never
// are.

// families are what the keys begin with, up to the first slash, that there have
// been lists of.
type families struct {
	mu    sync.Mutex // held by whoever adds one
	known atomic.Pointer[map[string]bool]
}

func familyOf(key []byte) []byte { return key[:bytes.IndexByte(key, '/')+1] }

func (f *families) have(key []byte) bool {
	known := f.known.Load()
	return known != nil && (*known)[string(familyOf(key))]
}

func (f *families) add(key []byte) {
	if f.have(key) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	more := map[string]bool{string(familyOf(key)): true}
	if known := f.known.Load(); known != nil {
		maps.Copy(more, *known)
	}
	f.known.Store(&more)
}

// mostListed is how much a list holds at most, in bytes.
const mostListed = 4 << 10

// isFolder tells whether the keys in [lo, hi) are those of a folder.
func isFolder(lo, hi []byte) bool {
	last := len(lo) - 1
	return last >= 0 && len(hi) == len(lo) && lo[last] == '/' && hi[last] == '/'+1 && string(hi[:last]) == string(lo[:last])
}

// appendListName appends by what name a list stands among the rows. No key of
// the store begins so.
func appendListName(name, folder []byte) []byte { return append(append(name, 0xFF), folder...) }
