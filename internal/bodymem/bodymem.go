// Package bodymem bounds the memory of request bodies. A [Budget] is the memory for one class
// of callers. Each owner in it, a user or an address, has a share. A [Claim] is the memory of
// one body, counted by the capacity of its buffer. The package imports only internal/fault.
package bodymem

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Limits are the bounds of a budget, in bytes. Each claim has its own, because a reload may
// change them while claims are open.
type Limits struct {
	Total int64 // of all owners together
	Share int64 // of one owner
}

// SlowAfter is the age from which a body that is still arriving may be evicted in favour of
// another body.
const SlowAfter = time.Second

// The errors of a claim for more memory.
var (
	full      = fault.New(fault.Overloaded, "too many request bodies are being read; try again").After(time.Second)
	shareFull = fault.New(fault.RateLimited, "your request bodies take all the memory that one caller may have; try again").After(time.Second)
	lost      = fault.New(fault.Overloaded, "the body arrived slowly, and its memory was needed for others; try again").After(time.Second)
)

// Budget counts the memory of the bodies of one class of callers. If it is full, a body that
// arrives slowly is evicted in favour of one that needs memory. The zero Budget is ready to
// use. It is safe for concurrent use.
type Budget struct {
	// Now is the clock for the age of a body. It must be set before the first claim;
	// nil: time.Now.
	Now func() time.Time

	used   atomic.Int64
	shards [16]shard
}

// shard is a part of the owners, with its own lock.
type shard struct {
	sync.Mutex
	owners map[string]*owner
	free   *owner   // the list of unused owners
	_      [40]byte // puts each shard into its own cache line
}

// owner is a user or an address that has claims. The lock of its shard guards it.
type owner struct {
	name  string
	used  int64
	first *Claim // first claim in the list of the owner's claims
	next  *owner // in the list of a shard's free owners
}

// The states of a claim.
const (
	arriving uint32 = iota // the body is being read
	complete               // the body is complete, or is no longer read
	evicted                // the memory was given to another body
)

// Claim is the memory of one body. [Budget.Open] opens it and [Claim.Release] ends it. Only
// Interrupt is safe for concurrent use. The zero Claim belongs to no budget: only Release may
// be called.
type Claim struct {
	budget   *Budget
	shard    *shard
	owner    *owner // owner to prev are guarded by shard
	taken    int64
	next     *Claim
	prev     *Claim
	limits   Limits
	since    time.Time
	received atomic.Int64
	state    atomic.Uint32

	mu sync.Mutex // guards w
	w  http.ResponseWriter
}

// Open opens c for a body that belongs to the owner of this name and arrives on the
// request that w answers.
func (b *Budget) Open(c *Claim, w http.ResponseWriter, name string, limits Limits) {
	c.budget, c.limits, c.w, c.since = b, limits, w, b.now()
	c.shard = b.shard(name)
	c.shard.Lock()
	defer c.shard.Unlock()
	o := c.shard.owner(name)
	if c.next = o.first; c.next != nil {
		c.next.prev = c
	}
	c.owner, o.first = o, c
}

// Resize changes the memory of the claim to bytes. If there is not enough, the slowest body is
// evicted. It is a body of the same owner if the owner's share is full, otherwise a body of any
// owner. If no body is slow, the claim does not change, and Resize returns an error.
func (c *Claim) Resize(bytes int64) *fault.Fault {
	for {
		refused := c.take(bytes)
		if refused != full && refused != shareFull {
			return refused
		}
		if !c.budget.evict(c, refused == shareFull) {
			return refused
		}
	}
}

// take is Resize without eviction.
func (c *Claim) take(bytes int64) *fault.Fault {
	c.shard.Lock()
	defer c.shard.Unlock()
	more := bytes - c.taken
	switch {
	case c.state.Load() == evicted:
		return lost
	case more > 0 && c.owner.used+more > c.limits.Share:
		return shareFull
	case c.budget.used.Add(more) > c.limits.Total && more > 0:
		c.budget.used.Add(-more)
		return full
	}
	c.owner.used += more
	c.taken = bytes
	return nil
}

// Received counts bytes that have arrived.
func (c *Claim) Received(bytes int) { c.received.Add(int64(bytes)) }

// Complete ends the reading of the body, which can no longer be evicted. It returns an error if
// the body was evicted before. After Complete, the claim does not use its ResponseWriter.
func (c *Claim) Complete() *fault.Fault {
	ok := c.state.CompareAndSwap(arriving, complete) || c.state.Load() == complete
	c.mu.Lock()
	c.w = nil
	c.mu.Unlock()
	if !ok {
		return lost
	}
	return nil
}

// Hold changes the memory of the claim to bytes, regardless of the limits. It is for a complete
// body that was changed.
func (c *Claim) Hold(bytes int64) {
	c.shard.Lock()
	defer c.shard.Unlock()
	c.budget.used.Add(bytes - c.taken)
	c.owner.used += bytes - c.taken
	c.taken = bytes
}

// Release ends the claim and frees its memory. Further calls do nothing.
func (c *Claim) Release() {
	if c.shard == nil {
		return
	}
	_ = c.Complete()
	c.shard.Lock()
	defer c.shard.Unlock()
	o := c.owner
	if o == nil {
		return
	}
	c.free()
	if c.next != nil {
		c.next.prev = c.prev
	}
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		o.first = c.next
	}
	c.owner, c.next, c.prev = nil, nil, nil
	if o.first == nil {
		delete(c.shard.owners, o.name)
		*o = owner{next: c.shard.free}
		c.shard.free = o
	}
}

// free frees the memory of the claim. The caller holds the lock of the shard.
func (c *Claim) free() {
	c.budget.used.Add(-c.taken)
	c.owner.used -= c.taken
	c.taken = 0
}

// Interrupt ends the wait for the next bytes of a body: its Read fails with
// os.ErrDeadlineExceeded. It is safe for concurrent use.
func (c *Claim) Interrupt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.w != nil {
		_ = http.NewResponseController(c.w).SetReadDeadline(time.Now())
	}
}

// arrival is the progress of a body.
type arrival struct {
	claim    *Claim
	received int64
	age      time.Duration
}

// slowerThan reports whether a is slower than other. Every body is slower than the zero
// arrival.
func (a arrival) slowerThan(other arrival) bool {
	return other.claim == nil || float64(a.received)*float64(other.age) < float64(other.received)*float64(a.age)
}

// evict frees the memory of the slowest body of c's owner, or of all owners. It returns false if
// no body is slow, or if the slowest body is that of c.
func (b *Budget) evict(c *Claim, ofOwner bool) bool {
	var slowest arrival
	now := b.now()
	for i := range b.shards {
		s := &b.shards[i]
		if ofOwner && s != c.shard {
			continue
		}
		s.Lock()
		for _, o := range s.owners {
			if ofOwner && o != c.owner {
				continue
			}
			for claim := o.first; claim != nil; claim = claim.next {
				found := arrival{claim, claim.received.Load(), now.Sub(claim.since)}
				if found.age >= SlowAfter && claim.state.Load() == arriving && claim.taken > 0 && found.slowerThan(slowest) {
					slowest = found
				}
			}
		}
		s.Unlock()
	}
	victim := slowest.claim
	if victim == nil || victim == c {
		return false
	}
	victim.shard.Lock()
	if victim.state.CompareAndSwap(arriving, evicted) {
		victim.free()
	}
	victim.shard.Unlock()
	victim.Interrupt()
	return true
}

func (b *Budget) now() time.Time {
	if b.Now == nil {
		return time.Now()
	}
	return b.Now()
}

// Used returns the number of bytes that are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

func (b *Budget) shard(name string) *shard {
	var h uint32 = 2166136261 // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return &b.shards[h%uint32(len(b.shards))]
}

// owner returns the owner with this name, and adds it if necessary. The caller holds the lock.
func (s *shard) owner(name string) *owner {
	o := s.owners[name]
	if o != nil {
		return o
	}
	if o = s.free; o != nil {
		s.free, o.next = o.next, nil
	} else {
		o = new(owner)
	}
	o.name = name
	if s.owners == nil {
		s.owners = make(map[string]*owner)
	}
	s.owners[name] = o
	return o
}
