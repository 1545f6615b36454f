package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Shared is an optional interface of an [Engine] that several processes have open at the same
// time. The updates of all of them run one after another. An update that follows one of
// unknown outcome runs after that one has ended.
type Shared interface {
	// Shared reports whether the engine has these properties.
	Shared() bool
}

// Node is one process among those that have a shared store open. Its epoch is given out once:
// a process that was taken for dead gets a new one.
type Node struct {
	Epoch   int64  `json:"epoch"`
	Name    string `json:"name"`             // for people
	Version string `json:"version"`          // of the build
	Config  string `json:"config,omitempty"` // fingerprint of the configuration
	Since   int64  `json:"since"`            // Unix seconds of its start
	Beat    int64  `json:"beat"`             // rises while the node lives
	Last    int64  `json:"last"`             // Unix seconds of the last beat
	Seen    int64  `json:"seen"`             // position in the feed up to which the node follows
	Ended   int64  `json:"ended,omitempty"`  // Unix seconds of its end; zero while it lives
	Cleared bool   `json:"cleared,omitempty"`
}

const (
	// beatInterval is the time between two beats of a node.
	beatInterval = 250 * time.Millisecond

	// freshness is how long after a beat was sent a node may admit calls.
	freshness = time.Second

	// endAfter is how long a node is silent before another one ends it.
	endAfter = 3 * time.Second

	// outcomePause is the time between two attempts to learn the outcome of a commit.
	outcomePause = 50 * time.Millisecond
)

// membership makes a [Store] one of the nodes of a shared engine. Each batch proves that the
// epoch has not been ended, and counts itself, in one record: the fence. So a node that was
// taken for dead never commits again, and the outcome of a commit can always be found out.
// No clock is trusted for that.
type membership struct {
	store *Store
	self  Node
	nonce []byte // tells this epoch from one that a store with a lost history gives out again
	batch int64  // number of the last batch; used by the goroutine that commits

	started time.Time
	fresh   atomic.Int64 // when the last beat that has succeeded began, since started; zero: never
	config  atomic.Value // string: fingerprint of the configuration

	follower atomic.Pointer[Follower]
	position int64           // in the feed; used by the goroutine that beats
	sights   map[int64]sight // of other nodes; likewise
	looked   time.Time       // when they were looked at last; likewise
	live     atomic.Pointer[[]Node]

	clearing sync.WaitGroup
	busy     atomic.Bool // a goroutine clears up after an ended node
	beating  sync.WaitGroup
}

// sight is when a node was first seen with its present beat.
type sight struct {
	beat  int64
	since time.Time
}

// Follower is what a node does about the other ones. Both functions may be called again with
// the same argument, and concurrently with each other.
type Follower struct {
	// Told is called with the topics that transactions of all nodes have told, in their
	// order. After an error it is called again, and the node admits no calls meanwhile.
	Told func(ctx context.Context, topics []string) error

	// Ended clears up after a node that has ended. After an error it is called again.
	Ended func(ctx context.Context, epoch int64) error
}

func isShared(e Engine) bool {
	s, ok := e.(Shared)
	return ok && s.Shared()
}

// Shared reports whether other processes may have the store open at the same time.
func (s *Store) Shared() bool { return s.shared }

// Epoch returns the number of this process among those that have opened the shared store;
// zero if it is not shared.
func (s *Store) Epoch() int64 {
	if m := s.member.Load(); m != nil {
		return m.self.Epoch
	}
	return 0
}

var lastEpochKey = Key("node", "last")

func nodeKey(epoch int64) []byte  { return Key("node", "at", epoch) }
func fenceKey(epoch int64) []byte { return Key("node", "fence", epoch) }

// fence returns the record that proves that an epoch has not ended and how many batches it has
// committed.
func (m *membership) fence(batch int64) []byte { return AppendKey(Key(batch), string(m.nonce)) }

// Join makes the process a node of a shared store; with another store it does nothing. It must
// be called once, before other processes may see what this one writes. The name, the version
// and the configuration of the node are those of as.
func (s *Store) Join(ctx context.Context, as Node) error {
	if !s.shared {
		return nil
	}
	m := &membership{store: s, self: as, nonce: []byte(rand.Text()), started: time.Now(), sights: map[int64]sight{}}
	m.config.Store(as.Config)
	err := s.Update(ctx, func(t Txn) error {
		last, err := getNumber(t, lastEpochKey)
		if err != nil {
			return err
		}
		if m.position, err = getNumber(t, feedHeadKey); err != nil {
			return err
		}
		m.self.Epoch, m.self.Seen, m.self.Since, m.self.Last = last+1, m.position, s.Now().Unix(), s.Now().Unix()
		return errors.Join(
			t.Set(lastEpochKey, Key(m.self.Epoch), time.Time{}),
			t.Set(fenceKey(m.self.Epoch), m.fence(0), time.Time{}),
			SetRecord(t, nodeKey(m.self.Epoch), m.self))
	})
	if err != nil {
		return err
	}
	s.member.Store(m)
	m.beating.Go(m.run)
	s.log.Info("joined the store", zap.Int64("epoch", m.self.Epoch))
	return nil
}

// Follow begins to follow the feed from where it was when the process joined, and to clear up
// after nodes that have ended. It must be called once; until then, [Store.Ready] returns an
// error. Without Join it does nothing.
func (s *Store) Follow(f Follower) {
	if m := s.member.Load(); m != nil {
		m.follower.Store(&f)
	}
}

// SetConfig changes the fingerprint of the configuration that other nodes see.
func (s *Store) SetConfig(fingerprint string) {
	if m := s.member.Load(); m != nil {
		m.config.Store(fingerprint)
	}
}

// Nodes returns the nodes of a shared store, the ended ones of the last hour included, by epoch.
// told is the position of the feed: what a node has not seen of it, it does not follow yet.
func (s *Store) Nodes(ctx context.Context) (nodes []Node, told int64, err error) {
	err = s.View(ctx, func(r Reader) (err error) {
		if told, err = getNumber(r, feedHeadKey); err != nil {
			return err
		}
		nodes, err = readNodes(r)
		return err
	})
	return nodes, told, err
}

// LiveNodes returns how many nodes have the store open, by the last look; one if the store is not
// shared. It does not block.
func (s *Store) LiveNodes() int {
	if m := s.member.Load(); m != nil {
		if live := m.live.Load(); live != nil {
			return max(1, len(*live))
		}
	}
	return 1
}

// Leads reports whether this node is the oldest one that lives, by the last look; true if the
// store is not shared. Work that one node should do is done by the node that leads. Two may
// lead for a moment, so the work must stay right if it is done twice.
func (s *Store) Leads() bool {
	m := s.member.Load()
	if m == nil {
		return true
	}
	live := m.live.Load()
	return live != nil && len(*live) > 0 && (*live)[0].Epoch == m.self.Epoch
}

// Rank returns the position of this node among those that live, from zero, and their number, by
// the last look. They are 0 and 1 if the store is not shared. It does not block.
func (s *Store) Rank() (rank, live int) {
	if m := s.member.Load(); m != nil {
		if nodes := m.live.Load(); nodes != nil {
			if rank = slices.IndexFunc(*nodes, func(n Node) bool { return n.Epoch == m.self.Epoch }); rank >= 0 {
				return rank, len(*nodes)
			}
		}
	}
	return 0, 1
}

// HasEnded reports inside a transaction whether an epoch has ended: nothing that is its own will
// be committed after this transaction.
func HasEnded(r Reader, epoch int64) (bool, error) {
	fence, err := r.Get(fenceKey(epoch))
	return fence == nil, err
}

func readNodes(r Reader) (nodes []Node, err error) {
	lo, hi := Below("node", "at")
	scanned := r.Scan(lo, hi, func(_, val []byte) bool {
		var n Node
		if err = DecodeRecord(val, &n); err == nil {
			nodes = append(nodes, n)
		}
		return err == nil
	})
	return nodes, errors.Join(scanned, err)
}

// check returns ErrFenced if the epoch has ended, or if the store has lost a batch of it. The
// caller runs a batch.
func (m *membership) check(r Reader) error {
	have, err := r.Get(fenceKey(m.self.Epoch))
	if err == nil && !bytes.Equal(have, m.fence(m.batch)) {
		err = fmt.Errorf("%w: epoch %d has ended", ErrFenced, m.self.Epoch)
	}
	return err
}

// count counts the batch in the fence.
func (m *membership) count(t Txn) error {
	return t.Set(fenceKey(m.self.Epoch), m.fence(m.batch+1), time.Time{})
}

// outcome finds out whether the batch in doubt was committed. It returns nil if it was,
// ErrUnreachable if nothing happened, and ErrFenced if the epoch has ended. While the engine cannot
// be reached nobody can end the epoch, so it asks until there is an answer, or the store closes.
func (m *membership) outcome(cause error) error {
	m.store.count(func(stats *Stats) { stats.Unknown++ })
	m.store.log.Warn("commit outcome unknown", zap.Error(cause))
	for {
		ctx, cancel := context.WithTimeout(context.Background(), endAfter)
		var have []byte
		err := m.store.engine.Update(ctx, func(t Txn) error {
			val, err := t.Get(fenceKey(m.self.Epoch))
			have = bytes.Clone(val)
			return err
		})
		cancel()
		switch {
		case err != nil:
		case bytes.Equal(have, m.fence(m.batch+1)):
			return nil
		case bytes.Equal(have, m.fence(m.batch)):
			return fmt.Errorf("%w: a commit did not happen: %v", ErrUnreachable, cause) //nolint:errorlint // its outcome is known now
		default:
			return fmt.Errorf("%w: epoch %d has ended", ErrFenced, m.self.Epoch)
		}
		select {
		case <-time.After(outcomePause):
		case <-m.store.closing.Done():
			return cause
		}
	}
}

// ready returns an error if the node must not admit calls.
func (m *membership) ready() error {
	if silent := time.Since(m.started) - time.Duration(m.fresh.Load()); m.fresh.Load() == 0 || silent > freshness {
		return fmt.Errorf("%w: the store has not answered for %v", ErrUnreachable, silent.Round(time.Millisecond))
	}
	return nil
}

// leave ends the epoch when no batch can follow. It waits only a moment: if it fails, the other
// nodes end the epoch.
func (m *membership) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), freshness)
	defer cancel()
	err := m.store.engine.Update(ctx, func(t Txn) error {
		if err := m.check(t); err != nil {
			return err
		}
		return endNode(t, m.self.Epoch, m.store.Now())
	})
	if err != nil {
		m.store.log.Warn("this node could not say that it has ended", zap.Error(err))
	}
}

// endNode ends an epoch.
func endNode(t Txn, epoch int64, now time.Time) error {
	var n Node
	if found, err := GetRecord(t, nodeKey(epoch), &n); err != nil || !found || n.Ended != 0 {
		return err
	}
	n.Ended = now.Unix()
	return errors.Join(t.Delete(fenceKey(epoch)), SetRecord(t, nodeKey(epoch), n))
}

// getNumber returns the number at key; zero if there is none.
func getNumber(r Reader, key []byte) (int64, error) {
	val, err := r.Get(key)
	if err != nil || val == nil {
		return 0, err
	}
	return decodeNumber(val)
}
