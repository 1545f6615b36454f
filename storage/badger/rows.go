package badger

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// rows are values that were read lately, by key. A read of the tree looks into
// every level that may have the key, and there are the more of them the more is
// stored; a read from here costs the same whatever is.
//
// A commit takes the keys out that it writes before it gets its time, so what a
// snapshot finds here is what it would find in the tree, if only it was read in
// a snapshot that is not later. What was read is kept only while no commit has
// begun since before its snapshot: else it could be what that one took out.
type rows struct {
	era    atomic.Uint64 // of commits: odd while one is under way, even between two
	lists  atomic.Bool   // there has been a list
	seed   maphash.Seed
	shards [rowShards]rowShard
}

const (
	rowShards = 64

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

func (r *rows) shard(key []byte) *rowShard {
	return &r.shards[maphash.Bytes(r.seed, key)%rowShards]
}

// get returns what a key has in the snapshot of a time, and whether that is
// known. Of an expired one nothing is.
func (r *rows) get(key []byte, at uint64) (one row, known bool) {
	s := r.shard(key)
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

// keep keeps what was read, where era is that from before the snapshot. It must
// not be changed any more.
func (r *rows) keep(key []byte, one row, era uint64) {
	if era%2 != 0 {
		return
	}
	s := r.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.era.Load() == era {
		s.put(string(key), one)
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

// begin begins a commit that writes these keys.
func (r *rows) begin(keys [][]byte) {
	r.era.Add(1)
	var name []byte
	for _, key := range keys {
		r.drop(key)
		if !r.lists.Load() {
			continue
		}
		for i, c := range key {
			if c == '/' {
				name = appendListName(name[:0], key[:i+1])
				r.drop(name)
			}
		}
	}
}

func (r *rows) drop(key []byte) {
	s := r.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, string(key))
	delete(s.old, string(key))
}

// end ends it, whatever has come of it.
func (r *rows) end() { r.era.Add(1) }

// A list is what a scan of a folder has found: of all keys that begin with a
// path up to a slash. A commit takes out those of all folders that a key which
// it writes lies in.

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
