package record

import (
	"crypto/rand"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// OwnerOf returns the owner of the claims of a process: the epoch of a shared store, or a random id,
// so that claims of two engines of one store differ.
func OwnerOf(s *storage.Store) string {
	if epoch := s.Epoch(); epoch != 0 {
		return OwnerOfEpoch(epoch)
	}
	return rand.Text()
}

// OwnerOfEpoch returns the owner of the claims of an epoch.
func OwnerOfEpoch(epoch int64) string { return "epoch " + strconv.FormatInt(epoch, 10) }

// Topics that the nodes of a shared store tell each other.
const (
	TopicDue       = "task/due"       // tasks may be due, and slots free
	TopicCallbacks = "task/callbacks" // callbacks may be due
	TopicOver      = "task/over/"     // and the id of a finished task that has changed
)

const (
	// sharedIdle is Idle on a shared store.
	sharedIdle = 5 * time.Second

	// courtesy is how much later than its time a node processes a task of another node.
	courtesy = time.Second
)

// Idle returns the maximum sleep of a driver.
func (s *Store) Idle() time.Duration {
	if s.Shared() {
		return sharedIdle
	}
	return Idle
}

// Yield returns how much later than its time this node processes a task, so that the nodes of a
// shared store do not all wake for each task. Each task has one node that does not wait. Which one
// that is follows from the id and the number of nodes. Claims stay right if two nodes differ about it.
func (s *Store) Yield(id string) time.Duration {
	if rank, live := s.Rank(); live > 1 && int(crc32.ChecksumIEEE([]byte(id))%uint32(live)) != rank { //nolint:gosec // few nodes
		return courtesy
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
// first run. On a shared store none was: the store finds out the outcome of each commit, and its
// engine may run a closure over values that are out of date, to learn which keys it reads.
func (s *Store) Again(ran *bool) bool {
	again := *ran && !s.Shared()
	*ran = true
	return again
}
