package identity

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// credentials is the table in memory of the credentials of one class that are in force, each with
// its holder. Every call reads it without a lock. It is split by the first byte of the hash into
// maps that are replaced whole, so that a change copies one part in 256.
type credentials[Holder any] struct {
	shards [256]atomic.Pointer[map[Hash]credential[Holder]]

	mu       sync.Mutex        // guards changes
	byRecord map[string][]Hash // the hashes in the table, by the id of their record
}

// credential is the holder of a credential, and the time from which it is no longer in force; the
// zero time means never.
type credential[Holder any] struct {
	holder *Holder
	until  time.Time
}

// find returns the holder of a credential that is in force. Most credentials never end, so it
// reads the clock only for those that do.
func (c *credentials[Holder]) find(hash Hash, now func() time.Time) (*Holder, bool) {
	shard := c.shards[hash[0]].Load()
	if shard == nil {
		return nil, false
	}
	found, ok := (*shard)[hash]
	if !ok || !found.until.IsZero() && !now().Before(found.until) {
		return nil, false
	}
	return found.holder, true
}

func (c *credentials[Holder]) count() int {
	n := 0
	for i := range c.shards {
		if shard := c.shards[i].Load(); shard != nil {
			n += len(*shard)
		}
	}
	return n
}

// load fills an empty table with what is in force of each record, each part
// written once.
func (c *credentials[Holder]) load(records iter.Seq2[string, map[Hash]credential[Holder]]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byRecord = make(map[string][]Hash)
	shards := make([]map[Hash]credential[Holder], len(c.shards))
	for id, inForce := range records {
		for hash, cred := range inForce {
			if shards[hash[0]] == nil {
				shards[hash[0]] = make(map[Hash]credential[Holder])
			}
			shards[hash[0]][hash] = cred
			c.byRecord[id] = append(c.byRecord[id], hash)
		}
	}
	for i, shard := range shards {
		if shard != nil {
			c.shards[i].Store(&shard)
		}
	}
}

// put replaces the entries of a record by those that are in force now.
func (c *credentials[Holder]) put(id string, inForce map[Hash]credential[Holder]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for hash, cred := range inForce {
		c.change(hash, func(shard map[Hash]credential[Holder]) { shard[hash] = cred })
	}
	for _, hash := range c.byRecord[id] {
		if _, kept := inForce[hash]; !kept {
			c.change(hash, func(shard map[Hash]credential[Holder]) { delete(shard, hash) })
		}
	}
	delete(c.byRecord, id)
	for hash := range inForce {
		c.byRecord[id] = append(c.byRecord[id], hash)
	}
}

func (c *credentials[Holder]) change(hash Hash, fn func(map[Hash]credential[Holder])) {
	shard := make(map[Hash]credential[Holder])
	if old := c.shards[hash[0]].Load(); old != nil {
		shard = maps.Clone(*old)
	}
	fn(shard)
	c.shards[hash[0]].Store(&shard)
}
