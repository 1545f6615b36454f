package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/ledger/verify"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// cluster is a shared store with several nodes. After each commit it verifies the store.
type cluster struct {
	t       testing.TB
	open    func() *memory.Engine
	broken  func(storage.Engine) storage.Engine // breaks a rule of the nodes, for a control; nil: none
	latency time.Duration                       // of each line
	nodes   []*clusterNode
	ids     atomic.Int64

	unsound atomic.Bool // a commit has left what must not be
	report  func(error) // is called for the first such commit
	damaged atomic.Bool // the test has damaged a record: nothing is verified
}

// clusterNode is a node with a ledger. From the ledger to the store, its engines are line, broken,
// faulty and a [storagetest.Witness].
type clusterNode struct {
	*Ledger
	store  *storage.Store
	line   *storagetest.Line
	faulty *storagetest.Faulty
	waits  atomic.Int64 // calls of OnReserve
}

// kill ends the process of a node whose line is cut.
func (n *clusterNode) kill() {
	n.line.Stop(false)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	n.Close(gone)
	_ = n.store.Close() // fails if the node has ended
}

// verify checks the store after a commit. ended: it was by a node whose epoch had ended.
func (c *cluster) verify(ended bool) {
	if c.damaged.Load() {
		return
	}
	engine := c.open()
	err := engine.View(context.Background(), func(r storage.Reader) error {
		var problems []string
		_, err := verify.Verify(context.Background(), r, time.Now(), func(p verify.Problem) {
			problems = append(problems, p.Where+": "+p.What)
		})
		if err == nil && len(problems) > 0 {
			err = errors.New(strings.Join(problems, "\n"))
		}
		return err
	})
	if ended {
		err = errors.Join(errors.New("a node has committed after its epoch had ended"), err)
	}
	if err != nil && c.unsound.CompareAndSwap(false, true) {
		c.report(err)
	}
}

// startCluster returns a cluster of n nodes in a synctest bubble.
func startCluster(t testing.TB, n int, opts Options) *cluster {
	t.Helper()
	c := &cluster{t: t, open: memory.NewShared(), report: func(err error) { t.Error("a commit leaves what must not be: ", err) }}
	for range n {
		c.start(opts)
	}
	time.Sleep(time.Second)
	return c
}

// start starts another node.
func (c *cluster) start(opts Options) *clusterNode {
	c.t.Helper()
	n := new(clusterNode)
	n.faulty = storagetest.NewFaulty(&storagetest.Witness{Engine: c.open(), Epoch: func() int64 { return n.store.Epoch() }, OnCommit: c.verify})
	n.line = &storagetest.Line{Engine: n.faulty, Latency: c.latency}
	if c.broken != nil {
		n.line.Engine = c.broken(n.faulty)
	}
	n.store = storage.New(n.line, storage.Options{})
	ctx := context.Background()
	if err := n.store.Join(ctx, storage.Node{}); err != nil {
		c.t.Fatal(err)
	}
	var err error
	opts.OnReserve = func(time.Duration) { n.waits.Add(1) }
	if n.Ledger, err = Open(ctx, n.store, opts); err != nil {
		c.t.Fatal(err)
	}
	n.store.Follow(storage.Follower{
		OnTopics: func(context.Context, []string) error { return nil },
		OnEnded:  n.EndEpoch,
	})
	c.nodes = append(c.nodes, n)
	return n
}

// stop ends all nodes.
func (c *cluster) stop() {
	for _, n := range c.nodes {
		n.line.Cut(false)
		n.line.Stop(false)
		n.Close(context.Background())
		_ = n.store.Close() // fails if the node has ended
	}
}

func (c *cluster) credit(user string, amount money.Amount) {
	c.t.Helper()
	id := journal.IDOf("credit", fmt.Sprint(c.ids.Add(1)))
	err := c.nodes[len(c.nodes)-1].Update(context.Background(), user, nil, func(t *Txn) error {
		_, err := journal.Book(t, time.Now(), journal.Transfer{
			ID: id, Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount),
		})
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) call(user string, ended usage.Ended) journal.Call {
	return journal.Call{
		ID: fmt.Sprint("req_", c.ids.Add(1)), Time: time.Now().UnixMilli(), User: user, Key: "key_1", Model: "m", Route: "messages",
		Ended: ended, Usage: usage.Reported,
	}
}

// wallet returns the state of a wallet in the store.
func (c *cluster) wallet(user string) (s journal.State) {
	c.t.Helper()
	err := c.open().View(context.Background(), func(r storage.Reader) (err error) {
		s, err = journal.ReadState(r, journal.Wallet(user))
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *cluster) checkWallet(user string, balance, reserved money.Amount) {
	c.t.Helper()
	if s := c.wallet(user); s.Balance != balance || s.Reserved != reserved {
		c.t.Errorf("the wallet of %s has %d with %d reserved, want %d with %d", user, s.Balance, s.Reserved, balance, reserved)
	}
}

func (c *cluster) reserve(node int, p Payer, amount money.Amount) *Reservation {
	c.t.Helper()
	r, err := c.nodes[node].Reserve(context.Background(), p, amount)
	if err != nil {
		c.t.Fatal(err)
	}
	return r
}

func (c *cluster) checkRefused(node int, p Payer, amount money.Amount, want error) {
	c.t.Helper()
	_, err := c.nodes[node].Reserve(context.Background(), p, amount)
	short, is := errors.AsType[*Shortfall](err)
	if wanted, _ := errors.AsType[*Shortfall](want); is && wanted != nil && *short == *wanted {
		return
	}
	if err != want { //nolint:errorlint // callers get the refusal itself
		c.t.Errorf("a reservation of %d at node %d: %v, want %v", amount, node, err, want)
	}
}

// onNodes runs a test with three nodes.
func onNodes(t *testing.T, fn func(t *testing.T, c *cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, Options{})
		defer c.stop()
		fn(t, c)
	})
}

var ann = Payer{User: "ann"}
