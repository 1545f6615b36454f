package record

import (
	"crypto/rand"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// OwnerOf returns the owner of the claims of a process. It is the epoch on a shared store, and a random
// id otherwise, so that the claims of two engines of one store differ.
func OwnerOf(s *storage.Store) string {
	if epoch := s.Epoch(); epoch != 0 {
		return OwnerOfEpoch(epoch)
	}
	return rand.Text()
}

// OwnerOfEpoch returns the owner of the claims of an epoch.
func OwnerOfEpoch(epoch int64) string { return "epoch " + strconv.FormatInt(epoch, 10) }

// Topics of the feed of a shared store; see [storage.Store.Tell].
const (
	TopicDue       = "task/due"       // tasks may be due, or slots of backends free
	TopicCallbacks = "task/callbacks" // callbacks may be due
	TopicOver      = "task/over/"     // followed by the id of a finished task that has changed
)

const (
	// sharedIdle is the value of [Store.Idle] on a shared store.
	sharedIdle = 5 * time.Second

	// yieldDelay is how long after its due time a node processes a task that another node processes
	// first.
	yieldDelay = time.Second
)

// Idle returns the maximum sleep of a driver, in which another process may leave work.
func (s *Store) Idle() time.Duration {
	if s.Shared() {
		return sharedIdle
	}
	return Idle
}

// Yield returns how long after its due time this node processes a task. It is zero for one node of each
// task, which the id and the number of nodes decide. So not all nodes of a shared store wake for each
// task. If two nodes do not agree on the number of nodes, claims still prevent that both process it.
func (s *Store) Yield(id string) time.Duration {
	if rank, live := s.Rank(); rank >= 0 && live > 1 && int(crc32.ChecksumIEEE([]byte(id))%uint32(live)) != rank { //nolint:gosec // few nodes
		return yieldDelay
	}
	return 0
}

// NewID returns a random task id: 26 characters of 5 bits. This node processes the task first.
func (s *Store) NewID() string {
	id := NewID()
	for s.Yield(id) != 0 {
		id = NewID()
	}
	return id
}

// Again reports whether an earlier run of a closure may have been committed; ran is false before the
// first run. On a shared store it returns false: the store finds out the outcome of each commit, and an
// earlier run may have been a rehearsal over old values; see [storage.Rehearsed].
func (s *Store) Again(ran *bool) bool {
	again := *ran && !s.Shared()
	*ran = true
	return again
}
