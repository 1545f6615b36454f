package password

import (
	"encoding/base64"
	"errors"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/argon2"
)

const (
	goodPassword  = "brown bag, blue rain"
	otherPassword = "seven sheep at six"
)

// TestTheReferenceHashMatches has a hash of the reference implementation (phc-winner-argon2,
// test.c), with its own parameters.
func TestTheReferenceHashMatches(t *testing.T) {
	t.Parallel()
	reference := "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	p, err := Parse(reference)
	if err != nil {
		t.Fatal(err)
	}
	if right, err := (Place{of: NewHasher(runtime.GOMAXPROCS(0))}).Matches(t.Context(), "password", p); err != nil || !right {
		t.Errorf("the reference hash: %v, %v", right, err)
	}
}

func TestInvalidHashesAreRefused(t *testing.T) {
	t.Parallel()
	good := Hash{Cost: currentCost, Salt: make([]byte, 16), Sum: make([]byte, 32)}.String()
	if _, err := Parse(good); err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawStdEncoding.EncodeToString
	for _, text := range []string{
		"", "x", good[1:], good + "$", good + " ", strings.Replace(good, "argon2id", "argon2i", 1),
		strings.Replace(good, "v=19", "v=16", 1), strings.Replace(good, "t=2", "t=0", 1), strings.Replace(good, "t=2", "t=02", 1),
		strings.Replace(good, "t=2", "t=999", 1), strings.Replace(good, "p=1", "p=0", 1), strings.Replace(good, "p=1", "p=1,x=2", 1),
		strings.Replace(good, "m=19456", "m=9999999", 1), strings.Replace(good, "m=19456", "m=-1", 1),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 4)) + "$" + b64(make([]byte, 32)),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 16)) + "$" + b64(make([]byte, 8)),
		"$argon2id$v=19$m=19456,t=2,p=1$" + b64(make([]byte, 16)) + "$" + b64(make([]byte, 100)),
		"$argon2id$v=19$m=19456,t=2,p=1$!!$!!",
	} {
		if _, err := Parse(text); !errors.Is(err, errHash) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzPHC(f *testing.F) {
	f.Add(None.String())
	f.Add("$argon2id$v=19$m=8,t=1,p=1$AAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := Parse(text)
		if err == nil && (p.String() != text || p.Memory > maxCost.Memory || p.Time > maxCost.Time || len(p.Sum) < 16) {
			t.Errorf("%q was read as %+v", text, p)
		}
	})
}

func TestConcurrentHashesAndWaitingCallersAreLimited(t *testing.T) {
	t.Parallel()
	h := NewHasher(runtime.GOMAXPROCS(0))
	computing, release := make(chan struct{}), make(chan struct{})
	var running, most, anonymous, mostAnonymous atomic.Int32
	raise := func(most *atomic.Int32, n int32) {
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
	}
	h.Derive = func(password, salt []byte, _ Cost, size int) []byte {
		raise(&most, running.Add(1))
		if string(password) == otherPassword {
			raise(&mostAnonymous, anonymous.Add(1))
			defer anonymous.Add(-1)
		}
		computing <- struct{}{}
		<-release
		running.Add(-1)
		return argon2.IDKey(password, salt, 1, 8, 1, uint32(size))
	}
	var all sync.WaitGroup
	hash := func(place Place, err error, password string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer place.Leave()
			if right, err := place.Matches(t.Context(), password, None); right || err != nil {
				t.Errorf("%v, %v", right, err)
			}
		})
	}
	refused := func(what string, enter func() (Place, error)) {
		t.Helper()
		for range 20 {
			if _, err := enter(); !errors.Is(err, errFull) {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	for range MaxAnonymous {
		place, err := h.EnterAnonymous()
		hash(place, err, otherPassword)
	}
	concurrent := cap(h.slots)
	for range concurrent - 1 {
		<-computing
	}
	// Unauthenticated callers occupy all of their places, including those for waiting.
	refused("one more unauthenticated caller", h.EnterAnonymous)
	// An authenticated caller finds a place, and is served before them.
	for range MaxHashes + MaxWaiting - MaxAnonymous {
		place, err := h.Enter()
		hash(place, err, goodPassword)
	}
	<-computing
	refused("one more authenticated caller", h.Enter)
	refused("one more unauthenticated caller, without a free place", h.EnterAnonymous)
	go func() {
		for range computing { // waiting callers are served one after another
		}
	}()
	close(release)
	all.Wait()
	close(computing)
	if n := int(most.Load()); n > concurrent || n > MaxHashes {
		t.Errorf("%d concurrent hashes, at most %d are allowed", n, concurrent)
	}
	if n := int(mostAnonymous.Load()); n >= concurrent {
		t.Errorf("%d concurrent hashes of unauthenticated callers, of %d in all", n, concurrent)
	}
	for range MaxHashes + MaxWaiting - MaxAnonymous {
		if _, err := h.Enter(); err != nil {
			t.Fatalf("afterwards: %v", err)
		}
	}
	for range MaxAnonymous {
		if _, err := h.EnterAnonymous(); err != nil {
			t.Fatalf("an unauthenticated caller, afterwards: %v", err)
		}
	}
}

// TestTheMemoryOfHashesIsLimited is not parallel, because it measures the memory of the process.
func TestTheMemoryOfHashesIsLimited(t *testing.T) {
	h := NewHasher(runtime.GOMAXPROCS(0))
	runtime.GC()
	before := heap()
	var most atomic.Uint64
	derive := h.Derive
	h.Derive = func(password, salt []byte, c Cost, size int) []byte {
		key := derive(password, salt, c, size)
		// The memory of this hash and of the others is still in use here.
		for now, m := heap(), most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		return key
	}
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			if _, err := (Place{of: h}).Hash(t.Context(), goodPassword); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	const allowed = (4*19 + 4) << 20
	if took := most.Load() - before; took > allowed || took < 19<<20 {
		t.Errorf("24 hashes took %d MiB", took>>20)
	}
}

// heap returns the size of all objects on the heap in bytes, including garbage that is not
// collected yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
