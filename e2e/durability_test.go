package e2e

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// issuance is what was acknowledged to the operator before the kills.
type issuance struct {
	mu      sync.Mutex
	users   int
	inForce map[string]string // secret by key id
	revoked map[string]string
}

func TestWhatWasAcknowledgedOutlivesKills(t *testing.T) {
	t.Parallel()
	g := newGateway(t, demonstration)
	told := &issuance{inForce: map[string]string{}, revoked: map[string]string{}}
	for round := range *killRounds / 3 {
		g.start()
		told.check(t, g)
		// A kill at a moment that nobody chose: in the middle of the writes that
		// follow some acknowledged one.
		victim, after := g.process, int64(1+rand.N(120))
		var acknowledged atomic.Int64
		inParallel(8, 8, func(worker int) {
			for n := 0; ; n++ {
				name := "user-" + strconv.Itoa(round) + "-" + strconv.Itoa(worker) + "-" + strconv.Itoa(n)
				if !told.write(g, name, n%3) {
					return // the process is gone
				}
				if acknowledged.Add(1) == after {
					victim.kill()
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		t.Logf("round %d: killed after %d acknowledged users; %d keys in force, %d revoked", round, acknowledged.Load(), len(told.inForce), len(told.revoked))
	}
	g.start()
	told.check(t, g)
}

// write makes a user and keys, revokes or replaces one, and notes what was
// acknowledged. It returns false when an answer stayed out.
func (i *issuance) write(g *gateway, name string, then int) bool {
	if g.tryPost("/modelgate/users", map[string]any{"name": name}, nil) != nil {
		return false
	}
	i.note(func() { i.users++ })
	var key issued
	if g.tryPost("/modelgate/keys", map[string]any{"user": name}, &key) != nil {
		return false
	}
	i.note(func() { i.inForce[key.ID] = key.Secret })
	if then == 0 {
		return true
	}

	// From here on until it is acknowledged, either may be true of the key.
	i.note(func() { delete(i.inForce, key.ID) })
	if then == 1 {
		if g.tryPost("/modelgate/keys/"+key.ID+"/revoke", nil, nil) != nil {
			return false
		}
		i.note(func() { i.revoked[key.ID] = key.Secret })
		return true
	}
	var next issued
	if g.tryPost("/modelgate/keys/"+key.ID+"/rotate", map[string]any{"grace": 0}, &next) != nil {
		return false
	}
	i.note(func() { i.inForce[next.ID], i.revoked["old "+key.ID] = next.Secret, key.Secret })
	return true
}

func (i *issuance) note(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// check asks for every key.
func (i *issuance) check(t *testing.T, g *gateway) {
	t.Helper()
	for id, secret := range i.inForce {
		if !g.authenticates(secret) {
			t.Errorf("the acknowledged key %s is lost", id)
		}
	}
	for id, secret := range i.revoked {
		if g.authenticates(secret) {
			t.Errorf("the key %s is in force again", id)
		}
	}
	if users := g.users(); users < i.users {
		t.Errorf("of %d acknowledged users %d are left", i.users, users)
	}
}
