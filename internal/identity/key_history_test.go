package identity

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// keyAt is a key as one node sees it. Nodes learn of a change one after another, so each has a history of
// its own.
type keyAt struct {
	id   string
	node int
}

// keyUse says how a node has answered to the use of a key. A creation and a revocation have no result.
type keyUse struct{ admitted bool }

// keysAtNodes is the specification of a key at a node: "create" comes before "revoke", and a key is admitted
// exactly between them.
var keysAtNodes = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		switch input.(string) {
		case "create":
			return state == "", "created"
		case "revoke":
			return state != "", "revoked"
		}
		return output.(keyUse).admitted == (state == "created"), state
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v → %+v", input, output) },
}

// followsWithin is how long after a commit a node that admits calls may not have read it.
const followsWithin = time.Second

// keyHistory runs clients that create, use and revoke keys at three nodes that stop, lose answers, end and
// join anew.
type keyHistory struct {
	t      *testing.T
	open   func() *memory.Engine
	broken func(storage.Engine) storage.Engine
	began  time.Time

	mu         sync.Mutex
	last       int64 // time of the last beginning or end of an operation
	present    [3]*node
	faulty     [3]*storagetest.Faulty
	secrets    map[string]string // by key id
	attempts   map[string]int    // to revoke, by key id
	ids        []string
	operations map[keyAt][]porcupine.Operation
}

// now returns a time that is later than all before.
func (h *keyHistory) now() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last = max(h.last+1, int64(time.Since(h.began)))
	return h.last
}

func (h *keyHistory) add(at keyAt, do string, began, ended int64, out keyUse) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations[at] = append(h.operations[at], porcupine.Operation{Input: do, Call: began, Output: out, Return: ended})
}

// everywhere adds a change that each node has read by a time.
func (h *keyHistory) everywhere(id, do string, began, ended int64) {
	for i := range h.present {
		h.add(keyAt{id, i}, do, began, ended, keyUse{})
	}
}

func (h *keyHistory) node(i int) *node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.present[i]
}

// start starts a process in place of the one at an index.
func (h *keyHistory) start(i int) {
	faulty := storagetest.NewFaulty(h.open())
	engine := storage.Engine(faulty)
	if h.broken != nil {
		engine = h.broken(engine)
	}
	n := startNode(h.t, engine, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.present[i], h.faulty[i] = n, faulty
}

func (h *keyHistory) create(n *node) {
	began := h.now()
	key, secret, err := n.CreateKey(context.Background(), "operator", "ann", KeySpec{})
	if err != nil {
		return // nobody knows the secret
	}
	h.everywhere(key.ID, "create", began, h.now()+int64(followsWithin))
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids, h.secrets[key.ID] = append(h.ids, key.ID), secret.Reveal()
}

// maxRevocations bounds the attempts to revoke a key, because many at once take long to be checked.
const maxRevocations = 3

func (h *keyHistory) revoke(n *node, id string) {
	h.mu.Lock()
	h.attempts[id]++
	enough := h.attempts[id] > maxRevocations
	h.mu.Unlock()
	if enough {
		return
	}
	began := h.now()
	_, err := n.RevokeKey(context.Background(), "operator", id)
	ended := h.now()
	switch {
	case err == nil:
	case errors.Is(err, errNotConfirmed):
		ended += int64(followsWithin)
	case errors.Is(err, storage.ErrUnknown), errors.Is(err, storage.ErrStopped), errors.Is(err, storage.ErrClosed):
		ended = math.MaxInt64
	default:
		return // nothing has happened
	}
	h.everywhere(id, "revoke", began, ended)
}

// use uses a key at a node. A process that is stopped, or not ready, gives no answer.
func (h *keyHistory) use(n *node, i int, id string) {
	h.mu.Lock()
	secret := h.secrets[id]
	h.mu.Unlock()
	if n.line.IsStopped() || n.store.Ready() != nil {
		return
	}
	began := h.now()
	admitted := n.admits(secret)
	h.add(keyAt{id, i}, "use", began, h.now(), keyUse{admitted})
}

// loseAnswer loses the answer of the next commit of a node.
func (h *keyHistory) loseAnswer(i int, random *rand.Rand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.faulty[i].Plan([]storagetest.Fault{storagetest.UnknownCommitted, storagetest.UnknownLost}[random.IntN(2)])
}

// client works at a node, mostly with the newest keys.
func (h *keyHistory) client(i int, random *rand.Rand) {
	for range 300 {
		time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		h.mu.Lock()
		ids := h.ids[max(0, len(h.ids)-3):]
		h.mu.Unlock()
		switch do := random.IntN(12); {
		case len(ids) == 0 || do == 0:
			h.create(h.node(i))
		case do == 1:
			if random.IntN(2) == 0 {
				h.loseAnswer(i, random)
			}
			h.revoke(h.node(i), ids[random.IntN(len(ids))])
		default:
			h.use(h.node(i), i, ids[random.IntN(len(ids))])
		}
	}
}

// harm harms nodes one after another until the clients have ended.
func (h *keyHistory) harm(random *rand.Rand, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
		}
		i := random.IntN(len(h.present))
		n, lasts := h.present[i], time.Duration(1000+random.IntN(5000))*time.Millisecond
		switch random.IntN(4) {
		case 0, 1:
			n.line.Stop(true)
			time.Sleep(lasts)
			n.line.Stop(false)
		case 2:
			n.line.Cut(true)
			time.Sleep(lasts)
			n.line.Cut(false)
		default:
			h.replace(i)
		}
		time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
		if n.store.Err() != nil {
			h.replace(i)
		}
	}
}

// replace kills a process and starts another one.
func (h *keyHistory) replace(i int) {
	n := h.present[i]
	n.line.Cut(true)
	_ = n.store.Close()
	h.start(i)
}

// runKeyHistory returns the operations, and an error for each key and node whose history has no order that
// explains it.
func runKeyHistory(t *testing.T, broken func(storage.Engine) storage.Engine, seed uint64) (uses int, err error) {
	t.Helper()
	h := &keyHistory{open: memory.NewShared(), broken: broken, secrets: map[string]string{}, attempts: map[string]int{}, operations: map[keyAt][]porcupine.Operation{}}
	synctest.Test(t, func(t *testing.T) {
		h.t, h.began = t, time.Now()
		for i := range h.present {
			h.start(i)
		}
		newUser(t, h.present[0], "ann")
		time.Sleep(time.Second)
		var clients, harm sync.WaitGroup
		for i := range h.present {
			clients.Go(func() { h.client(i, rand.New(rand.NewPCG(seed, uint64(i)))) }) //nolint:gosec // not negative
		}
		ended := make(chan struct{})
		harm.Go(func() { h.harm(rand.New(rand.NewPCG(seed, 99)), ended) })
		clients.Wait()
		close(ended)
		harm.Wait()
	})
	var bad []error
	for at, ops := range h.operations {
		for _, op := range ops {
			if op.Input == "use" {
				uses++
			}
		}
		if result := porcupine.CheckOperationsTimeout(keysAtNodes, ops, 20*time.Second); result != porcupine.Ok {
			bad = append(bad, fmt.Errorf("the %d operations on the key %s at node %d: %v", len(ops), at.id, at.node, result))
		}
	}
	return uses, errors.Join(bad...)
}

// TestKeysOfThreeNodesAreUsedBetweenCreationAndRevocation searches for an order of the operations on each
// key that explains each answer. A revocation that was answered admits no later call at any node.
func TestKeysOfThreeNodesAreUsedBetweenCreationAndRevocation(t *testing.T) {
	t.Parallel()
	sum := 0
	for seed := range uint64(10) {
		uses, err := runKeyHistory(t, nil, seed)
		if sum += uses; err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	t.Logf("%d uses of keys", sum)
}
