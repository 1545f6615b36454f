// Package password hashes the passwords of users with Argon2id and checks new passwords. A [Hasher]
// computes few hashes at a time, so that log-ins cannot take the memory or all cores of the
// process. A [Hash] is one hash with its parameters. The package imports neither users nor the store.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
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

// Cost is the cost of one Argon2id hash (RFC 9106).
type Cost struct {
	Time    uint32 // passes over the memory
	Memory  uint32 // KiB
	Threads uint8
}

// currentCost is the cost of new hashes.
var currentCost = Cost{Time: 2, Memory: 19 * 1024, Threads: 1}

// maxCost limits the cost of a stored hash, so that a damaged record cannot use up the memory of
// the process.
var maxCost = Cost{Time: 16, Memory: 256 * 1024, Threads: 16}

// Outdated reports whether a hash costs less than a new one. It is replaced when its user logs in.
func (c Cost) Outdated() bool {
	return c.Time < currentCost.Time || c.Memory < currentCost.Memory || c.Threads < currentCost.Threads
}

// Hash is the hash of a password. Its text is the PHC string format
// ($argon2id$v=19$m=…,t=…,p=…$salt$hash, base64 without padding).
type Hash struct {
	Cost
	Salt, Sum []byte
}

// None is the hash to compare with if there is no user or no password, so that the refusal takes the
// same time. No password matches it.
var None = Hash{Cost: currentCost, Salt: make([]byte, 16), Sum: make([]byte, 32)}

// String implements fmt.Stringer.
func (h Hash) String() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.Memory, h.Time, h.Threads,
		base64.RawStdEncoding.EncodeToString(h.Salt), base64.RawStdEncoding.EncodeToString(h.Sum))
}

// Parse reads what [Hash.String] wrote. It refuses a hash above [maxCost].
func Parse(text string) (Hash, error) {
	var h Hash
	parts := strings.Split(text, "$")
	if len(parts) != 6 {
		return h, errHash
	}
	_, cost := fmt.Sscanf(parts[3], "m=%d,t=%d,p=%d", &h.Memory, &h.Time, &h.Threads)
	salt, notSalt := base64.RawStdEncoding.DecodeString(parts[4])
	sum, notSum := base64.RawStdEncoding.DecodeString(parts[5])
	h.Salt, h.Sum = salt, sum
	switch {
	case cost != nil || notSalt != nil || notSum != nil,
		h.Time < 1 || h.Time > maxCost.Time, h.Threads < 1 || h.Threads > maxCost.Threads, h.Memory > maxCost.Memory,
		len(h.Salt) < 8, len(h.Sum) < 16 || len(h.Sum) > 64, h.String() != text: // the comparison also refuses other algorithms
		return h, errHash
	}
	return h, nil
}

// errHash does not quote the text, which is a secret.
var errHash = errors.New("a stored password is not an argon2id hash in the PHC format")

// The maximum of concurrent hashes, and of callers that wait for one. A hash takes 19 MiB and about
// 20 ms of a core. Thus the last caller in the queue waits a quarter of a second on a small machine,
// and the memory is bounded.
//
// Unauthenticated callers have MaxAnonymous of the places and all slots except one. Thus an
// authenticated caller always finds a place, and waits only for other authenticated callers.
const (
	MaxHashes    = 4
	MaxWaiting   = 16
	MaxAnonymous = 14
)

// Hasher computes the hashes of passwords, few at a time. Its methods may be called concurrently.
type Hasher struct {
	// Derive computes a sum of size bytes. Tests replace it with a cheaper function.
	Derive func(password, salt []byte, c Cost, size int) []byte

	places limit.Semaphore // of all callers that compute or wait
	slots  chan slot       // the free slots

	anonymous      limit.Semaphore // of unauthenticated callers that compute or wait
	anonymousSlots limit.Semaphore // of the slots that unauthenticated callers use

	collecting sync.Mutex
	released   atomic.Uint64 // hashes that have ended
	collected  atomic.Uint64 // the released hashes whose memory is known to be collected
}

// slot is the right to use the memory of one hash. The memory of the previous hash in the slot is
// garbage, which takes space until it is collected.
type slot struct {
	ended uint64 // the value of released after the last hash in the slot
	cycle uint64 // the cycles of the garbage collector at that time
}

// NewHasher returns a Hasher for a process that runs on this number of cores.
func NewHasher(cores int) *Hasher {
	// More concurrent hashes than cores take more memory and are not faster. Unauthenticated callers
	// have as many slots as there are cores, and authenticated ones have one more.
	concurrent := min(MaxHashes, cores+1)
	h := &Hasher{
		places:         limit.NewSemaphore(MaxHashes + MaxWaiting),
		slots:          make(chan slot, concurrent),
		anonymous:      limit.NewSemaphore(MaxAnonymous),
		anonymousSlots: limit.NewSemaphore(concurrent - 1),
		Derive: func(password, salt []byte, c Cost, size int) []byte {
			return argon2.IDKey(password, salt, c.Time, c.Memory, c.Threads, uint32(size))
		},
	}
	for range concurrent {
		h.slots <- slot{}
	}
	return h
}

// Place is a place in the queue of a Hasher, in which hashes are computed one after another.
type Place struct {
	of        *Hasher
	anonymous bool
}

// Enter gives an authenticated caller a place in the queue, or returns OVERLOADED. It does not
// wait. It is called before an attempt is counted, so that a refusal does not count as an attempt. The
// caller must leave the place.
func (h *Hasher) Enter() (Place, error) {
	if !h.places.TryAcquire() {
		return Place{}, errFull
	}
	return Place{h, false}, nil
}

// EnterAnonymous is [Hasher.Enter] for an unauthenticated caller: one that logs in,
// registers or resets the password.
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

// Leave releases the place.
func (p Place) Leave() {
	p.of.places.Release()
	if p.anonymous {
		p.of.anonymous.Release()
	}
}

// Matches reports whether has is the hash of a password. It compares in constant time.
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

// clean ensures that the memory of the previous hash in a slot is collected. Otherwise a burst of
// log-ins would use the memory of four hashes and of all earlier ones that are not collected yet. If
// log-ins are rare, the collector has run already; under load, clean runs it once for all
// four slots.
func (h *Hasher) clean(s slot) {
	isClean := func() bool {
		// A cycle that was running when the hash ended may have kept its memory.
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
