package identity

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/argon2"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// cost is the cost of one Argon2id hash (RFC 9106): passes over the memory, KiB of memory, and
// threads.
type cost struct {
	time    uint32
	memory  uint32
	threads uint8
}

// currentCost is the cost of new hashes. A stored hash that costs less is replaced when its user
// logs in.
var currentCost = cost{time: 2, memory: 19 * 1024, threads: 1}

// mostCost bounds the cost of a stored hash, so that a damaged record cannot take the memory of
// the whole process.
var mostCost = cost{time: 16, memory: 256 * 1024, threads: 16}

// phc is a password's hash, in the PHC string format
// ($argon2id$v=19$m=…,t=…,p=…$salt$hash, base64 without padding).
type phc struct {
	cost
	salt, sum []byte
}

func (p phc) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.time, p.threads,
		base64.RawStdEncoding.EncodeToString(p.salt), base64.RawStdEncoding.EncodeToString(p.sum))
}

// parsePHC reads what String wrote.
func parsePHC(text string) (phc, error) {
	var p phc
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" || parts[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return p, errPHC
	}
	var err error
	if _, err = fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &p.memory, &p.time, &p.threads); err != nil {
		return p, errPHC
	}
	if p.salt, err = base64.RawStdEncoding.Strict().DecodeString(parts[4]); err != nil {
		return p, errPHC
	}
	if p.sum, err = base64.RawStdEncoding.Strict().DecodeString(parts[5]); err != nil {
		return p, errPHC
	}
	switch {
	case p.time < 1 || p.time > mostCost.time, p.threads < 1 || p.threads > mostCost.threads, p.memory > mostCost.memory,
		len(p.salt) < 8, len(p.sum) < 16 || len(p.sum) > 64, p.String() != text:
		return p, errPHC
	}
	return p, nil
}

// errPHC does not say what is wrong: the text is a secret.
var errPHC = fmt.Errorf("a stored password is not an argon2id hash in the PHC format")

// noHash is compared if there is no user or no password, so that this answer takes as long. No
// password matches it.
var noHash = phc{cost: currentCost, salt: make([]byte, 16), sum: make([]byte, 32)}

// weaker reports whether a hash costs less than another.
func (c cost) weaker(than cost) bool {
	return c.time < than.time || c.memory < than.memory || c.threads < than.threads
}

// The most hashes at once, and the most that wait for one of those to end. A hash takes 19 MiB and
// about 20 ms of a core. So the last in the queue waits a quarter of a second on a small machine, and
// the memory is bounded.
//
// Unauthenticated callers have maxAnonymous of the places and all slots but one. However many of
// them come to log in, an authenticated caller finds a place, and waits for other authenticated
// callers at most.
const (
	maxHashes    = 4
	maxWaiting   = 16
	maxAnonymous = 14
)

// hasher computes the hashes of passwords, few at a time.
type hasher struct {
	places limit.Semaphore // of all that compute or wait
	slots  chan slot       // those in which nothing is computed
	derive func(password []byte, salt []byte, c cost, size int) []byte

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

func newHasher() *hasher {
	// More hashes at once than cores take memory and end no sooner. Unauthenticated callers have as
	// many slots as there are cores, and authenticated ones have one more.
	atOnce := min(maxHashes, runtime.GOMAXPROCS(0)+1)
	h := &hasher{
		places:         limit.NewSemaphore(maxHashes + maxWaiting),
		slots:          make(chan slot, atOnce),
		anonymous:      limit.NewSemaphore(maxAnonymous),
		anonymousSlots: limit.NewSemaphore(atOnce - 1),
		derive: func(password, salt []byte, c cost, size int) []byte {
			return argon2.IDKey(password, salt, c.time, c.memory, c.threads, uint32(size))
		},
	}
	for range atOnce {
		h.slots <- slot{}
	}
	return h
}

// place is a place in the queue of the hasher, in which hashes are computed one after another.
type place struct {
	*hasher
	anonymous bool
}

// enter gives an authenticated caller a place in the queue, or refuses with OVERLOADED. It does not
// wait and is called before an attempt is counted, so that a refusal here counts as none. The
// caller leaves the place.
func (h *hasher) enter() (place, error) {
	if !h.places.TryAcquire() {
		return place{}, errFull
	}
	return place{h, false}, nil
}

// enterAnonymous is enter for a caller that is not authenticated yet: one that logs in, registers or
// has forgotten the password.
func (h *hasher) enterAnonymous() (place, error) {
	if !h.anonymous.TryAcquire() {
		return place{}, errFull
	}
	if !h.places.TryAcquire() {
		h.anonymous.Release()
		return place{}, errFull
	}
	return place{h, true}, nil
}

var errFull = fault.New(fault.Overloaded, "too many passwords are being checked at this moment").After(time.Second)

// leave gives the place back.
func (p place) leave() {
	p.places.Release()
	if p.anonymous {
		p.hasher.anonymous.Release()
	}
}

// matches reports whether a password has a hash.
func (p place) matches(ctx context.Context, password string, has phc) (bool, error) {
	sum, err := p.sum(ctx, password, has)
	return err == nil && subtle.ConstantTimeCompare(sum, has.sum) == 1, err
}

// hash returns the hash of a new password.
func (p place) hash(ctx context.Context, password string) (string, error) {
	has := phc{cost: currentCost, salt: make([]byte, 16), sum: make([]byte, 32)}
	_, _ = rand.Read(has.salt) // never fails: it ends the process instead
	var err error
	has.sum, err = p.sum(ctx, password, has)
	return has.String(), err
}

// sum computes a hash as soon as a slot is free.
func (p place) sum(ctx context.Context, password string, has phc) ([]byte, error) {
	if p.anonymous {
		if err := p.anonymousSlots.Acquire(ctx); err != nil {
			return nil, err
		}
		defer p.anonymousSlots.Release()
	}
	return p.compute(ctx, password, has)
}

func (h *hasher) compute(ctx context.Context, password string, p phc) ([]byte, error) {
	select {
	case free := <-h.slots:
		h.clean(free)
		defer func() { h.slots <- slot{h.released.Add(1), cycles()} }()
		return h.derive([]byte(password), p.salt, p.cost, len(p.sum)), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// clean ensures that the memory of the hash before in a slot is collected. Without it a burst of
// log-ins would hold the memory of four hashes, and that of as many more as the collector lets
// be. If log-ins are rare, the collector has run by itself; under load clean runs it once for all
// four slots.
func (h *hasher) clean(s slot) {
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
