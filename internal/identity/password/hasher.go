package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"runtime"
	"runtime/metrics"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// The most hashes at once, and the most that wait for one of those to end. A hash takes 19 MiB and
// about 20 ms of a core. So the last in the queue waits a quarter of a second on a small machine, and
// the memory is bounded.
//
// Unauthenticated callers have MaxAnonymous of the places and all slots but one. However many of
// them come to log in, an authenticated caller finds a place, and waits for other authenticated
// callers at most.
const (
	MaxHashes    = 4
	MaxWaiting   = 16
	MaxAnonymous = 14
)

// Hasher computes the hashes of passwords, few at a time. Its methods may be called concurrently.
type Hasher struct {
	// Derive computes a sum of size bytes. Tests replace it by a cheaper one.
	Derive func(password, salt []byte, c Cost, size int) []byte

	places limit.Semaphore // of all that compute or wait
	slots  chan slot       // those in which nothing is computed

	anonymous      limit.Semaphore // of unauthenticated callers that compute or wait
	anonymousSlots limit.Semaphore // of slots that unauthenticated callers have

	collecting sync.Mutex
	released   atomic.Uint64 // hashes that have ended
	collected  atomic.Uint64 // of those, how many certainly have no memory any more
}

// slot is the right to the memory of one hash. The memory of the hash before in it is garbage,
// which still takes memory until it is collected.
type slot struct {
	ended uint64 // which hash, counted by those that have ended, was the last in it
	cycle uint64 // of the garbage collector, at that time
}

// NewHasher returns a Hasher for a process that runs on so many cores.
func NewHasher(cores int) *Hasher {
	// More hashes at once than cores take memory and end no sooner. Unauthenticated callers have as
	// many slots as there are cores, and authenticated ones have one more.
	atOnce := min(MaxHashes, cores+1)
	h := &Hasher{
		places:         limit.NewSemaphore(MaxHashes + MaxWaiting),
		slots:          make(chan slot, atOnce),
		anonymous:      limit.NewSemaphore(MaxAnonymous),
		anonymousSlots: limit.NewSemaphore(atOnce - 1),
		Derive: func(password, salt []byte, c Cost, size int) []byte {
			return argon2.IDKey(password, salt, c.Time, c.Memory, c.Threads, uint32(size))
		},
	}
	for range atOnce {
		h.slots <- slot{}
	}
	return h
}

// Place is a place in the queue of a Hasher, in which hashes are computed one after another.
type Place struct {
	of        *Hasher
	anonymous bool
}

// Enter gives an authenticated caller a place in the queue, or refuses with OVERLOADED. It does not
// wait and is called before an attempt is counted, so that a refusal here counts as none. The
// caller leaves the place.
func (h *Hasher) Enter() (Place, error) {
	if !h.places.TryAcquire() {
		return Place{}, errFull
	}
	return Place{h, false}, nil
}

// EnterAnonymous is [Hasher.Enter] for a caller that is not authenticated yet: one that logs in,
// registers or has forgotten the password.
func (h *Hasher) EnterAnonymous() (Place, error) {
	if !h.anonymous.TryAcquire() {
		return Place{}, errFull
	}
	if !h.places.TryAcquire() {
		h.anonymous.Release()
		return Place{}, errFull
	}
	return Place{h, true}, nil
}

var errFull = fault.New(fault.Overloaded, "too many passwords are being checked at this moment").After(time.Second)

// Leave gives the place back.
func (p Place) Leave() {
	p.of.places.Release()
	if p.anonymous {
		p.of.anonymous.Release()
	}
}

// Matches reports whether a password has a hash. It compares in constant time.
func (p Place) Matches(ctx context.Context, password string, has Hash) (bool, error) {
	sum, err := p.sum(ctx, password, has)
	return err == nil && subtle.ConstantTimeCompare(sum, has.Sum) == 1, err
}

// Hash returns the hash of a new password, as text.
func (p Place) Hash(ctx context.Context, password string) (string, error) {
	has := Hash{Cost: currentCost, Salt: make([]byte, 16), Sum: make([]byte, 32)}
	_, _ = rand.Read(has.Salt) // never fails: it ends the process instead
	var err error
	has.Sum, err = p.sum(ctx, password, has)
	return has.String(), err
}

// sum computes a hash as soon as a slot is free.
func (p Place) sum(ctx context.Context, password string, has Hash) ([]byte, error) {
	if p.anonymous {
		if err := p.of.anonymousSlots.Acquire(ctx); err != nil {
			return nil, err
		}
		defer p.of.anonymousSlots.Release()
	}
	select {
	case free := <-p.of.slots:
		p.of.clean(free)
		defer func() { p.of.slots <- slot{p.of.released.Add(1), cycles()} }()
		return p.of.Derive([]byte(password), has.Salt, has.Cost, len(has.Sum)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// clean ensures that the memory of the hash before in a slot is collected. Without it a burst of
// log-ins would hold the memory of four hashes, and that of as many more as the collector lets
// be. If log-ins are rare, the collector has run by itself; under load clean runs it once for all
// four slots.
func (h *Hasher) clean(s slot) {
	isClean := func() bool {
		// The cycle that was under way when the hash ended may have seen it alive.
		return s.ended <= h.collected.Load() || cycles() >= s.cycle+2
	}
	if isClean() {
		return
	}
	h.collecting.Lock()
	defer h.collecting.Unlock()
	if isClean() {
		return
	}
	ended := h.released.Load()
	runtime.GC()
	h.collected.Store(ended)
}

// cycles returns how many cycles the garbage collector has completed.
func cycles() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
