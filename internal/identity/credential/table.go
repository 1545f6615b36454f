package credential

import (
	"iter"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Table is the table in memory of the credentials of one class that are in force, each with its
// holder. The zero value is empty and ready; its methods may be called concurrently. Find takes no
// lock. The table is split by the first byte of the hash into maps that are replaced whole. Thus a
// change copies one part in 256.
type Table[Holder any] struct {
	shards [256]atomic.Pointer[Entries[Holder]]

	mu       sync.Mutex        // guards changes
	byRecord map[string][]Hash // the hashes in the table, by the id of their record
}

// Entry is the holder of a credential, and the Unix second from which it is no longer in force; zero
// means never.
type Entry[Holder any] struct {
	Holder *Holder
	Until  int64
}

// Entries are credentials by their hashes.
type Entries[Holder any] map[Hash]Entry[Holder]

// Find returns the holder of a credential that is in force. Most credentials never end, so it
// reads the clock only for those that do.
func (c *Table[Holder]) Find(hash Hash, now func() time.Time) (*Holder, bool) {
	shard := c.shards[hash[0]].Load()
	if shard == nil {
		return nil, false
	}
	found, ok := (*shard)[hash]
	if !ok || found.Until != 0 && now().Unix() >= found.Until {
		return nil, false
	}
	return found.Holder, true
}

// Count returns the number of credentials in the table.
func (c *Table[Holder]) Count() int {
	n := 0
	for i := range c.shards {
		if shard := c.shards[i].Load(); shard != nil {
			n += len(*shard)
		}
	}
	return n
}

// Load fills an empty table with the entries of records that are in force. It writes each
// part once.
func (c *Table[Holder]) Load(records iter.Seq2[string, Entries[Holder]]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byRecord = make(map[string][]Hash)
	shards := make([]Entries[Holder], len(c.shards))
	for id, inForce := range records {
		for hash, cred := range inForce {
			if shards[hash[0]] == nil {
				shards[hash[0]] = make(Entries[Holder])
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

// Put replaces the entries of a record with those that are in force now.
func (c *Table[Holder]) Put(id string, inForce Entries[Holder]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for hash, cred := range inForce {
		c.change(hash, func(shard Entries[Holder]) { shard[hash] = cred })
	}
	for _, hash := range c.byRecord[id] {
		if _, kept := inForce[hash]; !kept {
			c.change(hash, func(shard Entries[Holder]) { delete(shard, hash) })
		}
	}
	delete(c.byRecord, id)
	for hash := range inForce {
		c.byRecord[id] = append(c.byRecord[id], hash)
	}
}

func (c *Table[Holder]) change(hash Hash, fn func(Entries[Holder])) {
	shard := make(Entries[Holder])
	if old := c.shards[hash[0]].Load(); old != nil {
		shard = maps.Clone(*old)
	}
	fn(shard)
	c.shards[hash[0]].Store(&shard)
}
