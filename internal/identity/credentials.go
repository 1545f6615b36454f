package identity

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// Principal is who calls, as one key of one user. It never changes; a change
// of the records makes a new one.
type Principal struct {
	UserID   string
	UserName string
	KeyID    string
	KeyName  string

	models catalog.Patterns
	ranges []netip.Prefix
}

// MayUse tells whether the key's scope takes in model.
func (p *Principal) MayUse(model string) bool {
	return len(p.models) == 0 || p.models.Match(model)
}

// MayCallFrom tells whether the key may be used from addr. A key without
// ranges may be used from anywhere; one with ranges is refused where the
// address is not known.
func (p *Principal) MayCallFrom(addr netip.Addr) bool {
	if len(p.ranges) == 0 {
		return true
	}
	addr = addr.Unmap().WithZone("")
	for _, r := range p.ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// credentials is the table of what is in force, read without a lock on every
// call. It is split by the first byte of the hash into maps that are replaced
// whole, so that a change copies one part in 256.
type credentials struct {
	shards [256]atomic.Pointer[map[Hash]credential]

	mu    sync.Mutex        // held by whoever changes the table
	byKey map[string][]Hash // the hashes in the table of each key id
}

// credential is a principal and the time from which it is no longer in force;
// zero means never.
type credential struct {
	principal *Principal
	until     time.Time
}

func (c *credentials) find(hash Hash, now time.Time) (*Principal, bool) {
	shard := c.shards[hash[0]].Load()
	if shard == nil {
		return nil, false
	}
	found, ok := (*shard)[hash]
	if !ok || !found.until.IsZero() && !now.Before(found.until) {
		return nil, false
	}
	return found.principal, true
}

func (c *credentials) count() int {
	n := 0
	for i := range c.shards {
		if shard := c.shards[i].Load(); shard != nil {
			n += len(*shard)
		}
	}
	return n
}

// load fills an empty table, each part written once.
func (c *credentials) load(users map[string]User, keys []keyRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey = make(map[string][]Hash)
	shards := make([]map[Hash]credential, len(c.shards))
	for _, key := range keys {
		user, ok := users[key.UserID]
		if !ok {
			continue
		}
		for hash, cred := range inForce(user, key) {
			if shards[hash[0]] == nil {
				shards[hash[0]] = make(map[Hash]credential)
			}
			shards[hash[0]][hash] = cred
			c.byKey[key.ID] = append(c.byKey[key.ID], hash)
		}
	}
	for i, shard := range shards {
		if shard != nil {
			c.shards[i].Store(&shard)
		}
	}
}

// put replaces what the table holds of a key by what is in force of it now.
func (c *credentials) put(user User, key keyRecord) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fresh := inForce(user, key)
	for hash, cred := range fresh {
		c.change(hash, func(shard map[Hash]credential) { shard[hash] = cred })
	}
	for _, hash := range c.byKey[key.ID] {
		if _, kept := fresh[hash]; !kept {
			c.change(hash, func(shard map[Hash]credential) { delete(shard, hash) })
		}
	}
	delete(c.byKey, key.ID)
	for hash := range fresh {
		c.byKey[key.ID] = append(c.byKey[key.ID], hash)
	}
}

// drop takes a key out of the table.
func (c *credentials) drop(keyID string) {
	c.put(User{Disabled: true}, keyRecord{Key: Key{ID: keyID}})
}

func (c *credentials) change(hash Hash, fn func(map[Hash]credential)) {
	shard := make(map[Hash]credential)
	if old := c.shards[hash[0]].Load(); old != nil {
		shard = maps.Clone(*old)
	}
	fn(shard)
	c.shards[hash[0]].Store(&shard)
}

// inForce returns the hashes by which a key may be used, now or until a time.
func inForce(user User, key keyRecord) map[Hash]credential {
	if user.Disabled || key.Revoked != 0 {
		return nil
	}
	principal := &Principal{
		UserID: user.ID, UserName: user.Name,
		KeyID: key.ID, KeyName: key.Name,
		models: key.Models, ranges: key.Ranges,
	}
	fresh := map[Hash]credential{Hash(key.Hash): {principal, unixTime(key.Expires)}}
	if key.Previous != nil {
		until := key.PreviousUntil
		if key.Expires != 0 {
			until = min(until, key.Expires)
		}
		fresh[Hash(key.Previous)] = credential{principal, unixTime(until)}
	}
	return fresh
}

// unixTime is time.Unix, but zero for zero.
func unixTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
