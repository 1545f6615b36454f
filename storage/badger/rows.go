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

// rows caches values that were read recently, by key. Reading the tree searches
// every level that may contain the key, and the number of levels grows with the
// store. Reading the cache always costs the same.
//
// Before a commit gets its timestamp, it removes the keys that it writes from
// the cache. Afterwards it adds the new values of the keys that were cached. So
// a cached value is the same as in the tree, unless the snapshot is older than
// the entry, which get checks. A value that was read is cached only if no
// commit that writes its key has begun since before the snapshot. Otherwise it
// could be the value that this commit removed.
type rows struct {
	begun  atomic.Uint64           // commits
	ended  atomic.Uint64           // commits that a snapshot taken now sees
	last   [rowSlots]atomic.Uint64 // the last commit that wrote a key of the slot
	listed families
	seed   maphash.Seed
	shards [rowShards]rowShard
}

const (
	rowShards = 64

	// rowSlots is the number of slots that record which keys were written. It
	// is much larger than the number of keys in a commit, so that few keys are
	// mistaken for written ones.
	rowSlots = 1 << 16

	// rowCost is the approximate size of a row without its key and value, in
	// bytes.
	rowCost = 128
)

// rowShard holds two generations. When the young one is full it becomes the old
// one, whose rows are dropped except those that were read meanwhile.
type rowShard struct {
	mu         sync.Mutex
	young, old map[string]row
	used       int // bytes in young
	max        int
}

// row is a value, nil if the key is absent, or a list. It is never changed.
type row struct {
	val     []byte
	list    []pair
	expires uint64 // Unix seconds; zero: never
	at      uint64 // timestamp of the snapshot in which it was read
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

func newRows(size int64) *rows {
	r := &rows{seed: maphash.MakeSeed()}
	for i := range r.shards {
		r.shards[i].max = int(size) / rowShards / 2
	}
	return r
}

// place returns the shard of a key and the slot that records its commits.
func (r *rows) place(key []byte) (*rowShard, *atomic.Uint64) {
	hash := maphash.Bytes(r.seed, key)
	return &r.shards[hash%rowShards], &r.last[hash>>8%rowSlots]
}

// get returns the value of a key in the snapshot of a time, and whether it is
// known. Expired values are unknown.
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

// keep caches a row that was read. endedBefore is the number of commits that had ended before
// the snapshot. The row must not be changed afterwards.
func (r *rows) keep(key []byte, one row, endedBefore uint64) {
	s, last := r.place(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if last.Load() <= endedBefore {
		s.put(string(key), one)
	}
}

// keepList caches the result of scanning a folder, unless a commit has begun
// since.
func (r *rows) keepList(folder []byte, list row, endedBefore uint64) {
	r.listed.add(folder)
	name := appendListName(nil, folder)
	s, _ := r.place(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.begun.Load() == endedBefore { // later commits see that this family has lists
		s.put(string(name), list)
	}
}

// put adds a row to the young generation. The caller holds the lock.
func (s *rowShard) put(key string, one row) {
	size := len(key) + one.size()
	if size > s.max/8 {
		return
	}
	if s.used += size; s.used > s.max || s.young == nil {
		s.old, s.young, s.used = s.young, make(map[string]row), size
	}
	s.young[key] = one
}

// change is a key that a commit writes.
type change struct {
	key, val []byte // val is nil if the key is deleted
	expires  uint64 // Unix seconds; zero: never
	known    bool   // its value was cached
}

// begin begins a commit that makes these changes.
func (r *rows) begin(changes []change) {
	commit := r.begun.Add(1)
	var name []byte
	for i := range slices.Backward(changes) { // if a key is written twice, the last write counts
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

// drop removes a key from the cache for a commit and reports whether a value
// was cached.
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

// end ends the commit. at is the timestamp of the first snapshot that sees the
// changes, or zero if there may be none. It caches the new values of keys that
// were cached. Other keys are mostly new records, which are rarely read soon.
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

// families are the prefixes of keys, up to the first slash, for which lists
// have been cached. A list is the result of scanning a folder: all keys that
// begin with a path up to a slash. A commit removes the lists of all folders
// that contain a key which it writes; most families have no lists.
type families struct {
	mu    sync.Mutex // held while one is added
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

// maxListed is the largest size of a cached list in bytes.
const maxListed = 4 << 10

// isFolder reports whether [lo, hi) covers exactly the keys of a folder.
func isFolder(lo, hi []byte) bool {
	last := len(lo) - 1
	return last >= 0 && len(hi) == len(lo) && lo[last] == '/' && hi[last] == '/'+1 && string(hi[:last]) == string(lo[:last])
}

// appendListName appends the key under which a list is cached. No key of the
// store begins with 0xFF.
func appendListName(name, folder []byte) []byte { return append(append(name, 0xFF), folder...) }
