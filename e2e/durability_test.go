package e2e

import (
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

// issuedKeys is what the gateway acknowledged to the operator before the kills.
type issuedKeys struct {
	mu      sync.Mutex
	users   int
	valid   map[string]string // secret by key id
	revoked map[string]string
}

func TestAcknowledgedChangesSurviveKills(t *testing.T) {
	t.Parallel()
	g := newGateway(t, demonstration)
	reported := &issuedKeys{valid: map[string]string{}, revoked: map[string]string{}}
	for round := range *killRounds / 3 {
		g.start()
		reported.check(t, g)
		// The kill happens at a random time, during the writes after an
		// acknowledged one.
		victim, after := g.process, int64(1+rand.N(120))
		var acknowledged atomic.Int64
		inParallel(8, 8, func(worker int) {
			for n := 0; ; n++ {
				name := "user-" + strconv.Itoa(round) + "-" + strconv.Itoa(worker) + "-" + strconv.Itoa(n)
				if !reported.write(g, name, n%3) {
					return // the process is gone
				}
				if acknowledged.Add(1) == after {
					victim.kill()
				}
			}
		})
		receive(t, victim.exited, "the end of the process")
		t.Logf("round %d: killed after %d acknowledged users; %d keys valid, %d revoked", round, acknowledged.Load(), len(reported.valid), len(reported.revoked))
	}
	g.start()
	reported.check(t, g)
}

// write creates a user and keys, revokes or rotates one, and records what was
// acknowledged. It returns false if an answer did not arrive.
func (i *issuedKeys) write(g *gateway, name string, then int) bool {
	if g.tryPost("/modelgate/users", map[string]any{"name": name}, nil) != nil {
		return false
	}
	i.note(func() { i.users++ })
	var key issued
	if g.tryPost("/modelgate/keys", map[string]any{"user": name}, &key) != nil {
		return false
	}
	i.note(func() { i.valid[key.ID] = key.Secret })
	if then == 0 {
		return true
	}

	// From here until the acknowledgement, the key may be in either state.
	i.note(func() { delete(i.valid, key.ID) })
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
	i.note(func() { i.valid[next.ID], i.revoked["old "+key.ID] = next.Secret, key.Secret })
	return true
}

func (i *issuedKeys) note(change func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	change()
}

// check authenticates with every key.
func (i *issuedKeys) check(t *testing.T, g *gateway) {
	t.Helper()
	for id, secret := range i.valid {
		if !g.authenticates(secret) {
			t.Errorf("the acknowledged key %s is lost", id)
		}
	}
	for id, secret := range i.revoked {
		if g.authenticates(secret) {
			t.Errorf("the key %s is valid again", id)
		}
	}
	if users := g.users(); users < i.users {
		t.Errorf("%d of %d acknowledged users are left", users, i.users)
	}
}
