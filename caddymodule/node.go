package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Node is what lives as long as its store is open: longer than a configuration,
// because a reload starts the new one before the old has stopped. All of it can
// be rebuilt from the store.
type Node struct {
	Store     *storage.Store
	Directory *identity.Directory
	Ledger    *ledger.Ledger
	Billing   *billing.Desk
	Rates     *limit.Table
	Keyring   *seal.Keyring

	bodyBytes     atomic.Int64 // of request bodies in memory
	strangerBytes atomic.Int64 // of those of strangers, which are not in bodyBytes
	calls         atomic.Int64 // under way
	verified      atomic.Int64 // problems that the last verify found
	draining      atomic.Bool
	logger        *zap.Logger

	key    string        // of the storage
	closed chan struct{} // closed when the store is

	life context.Context // of open calls; ends when the process cannot wait for them
	end  context.CancelFunc

	closing sync.Once
	swept   chan struct{} // closed when the sweeper has ended

	announcing sync.Once  // of the setup code
	rotating   sync.Mutex // held while the master key is changed

	probe struct {
		sync.Mutex
		at  time.Time
		err error
	}
}

// nodes are the nodes in use, by the key of their storage. ends has, by the same
// keys, the channel that is closed when the last node of a place is: the pool
// lets go of a node before it is closed, and who opens the place again waits.
var (
	nodes = caddy.NewUsagePool()
	ends  sync.Map // string → chan struct{}
)

func init() {
	// One hook for the process: Caddy's per-configuration hooks do not fire for
	// apps.
	caddy.OnExit(func(ctx context.Context) {
		var open []*Node // drained outside of Range, which keeps calls from giving them back
		nodes.Range(func(_, value any) bool {
			open = append(open, value.(*Node))
			return true
		})
		for _, node := range open {
			node.drain(ctx)
		}
	})
}

// openNode opens the engine and loads what stands in memory. The pool sees to it
// that a place is opened once at a time; one that is still closing is awaited.
func openNode(ctx context.Context, opener storage.Opener, keys masterKeys, logger *zap.Logger) (*Node, error) {
	if before, ok := ends.Load(opener.Key()); ok {
		select {
		case <-before.(chan struct{}):
		case <-time.After(openPatience):
			return nil, errors.New("the store is still being closed by a configuration before this one")
		}
	}
	engine, err := opener.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	store := storage.New(engine, storage.Options{Logger: logger.Named("store"), Clock: clockOf(opener)})
	node := &Node{Store: store, key: opener.Key(), logger: logger, closed: make(chan struct{}), swept: make(chan struct{}), Rates: limit.NewTable()}
	node.life, node.end = context.WithCancel(context.Background())
	if err := storage.CheckFormat(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if node.Keyring, err = keys.open(ctx, store, opener); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if node.Directory, err = identity.Open(ctx, store, node.Keyring, logger.Named("audit")); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	node.Ledger, err = ledger.Open(ctx, store, ledger.Options{
		Sources: billing.Sources(store.Now), Logger: logger.Named("ledger"),
	})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	node.Billing = billing.NewDesk(store, node.Ledger, node.Directory, logger.Named("billing"))
	go node.sweep()
	ends.Store(node.key, node.closed)
	return node, nil
}

// clockOf returns the clock of a store that has one of its own, as one that
// several machines share would; nil is the clock of this machine.
func clockOf(opener storage.Opener) func() time.Time {
	if own, ok := opener.(interface{ Now() time.Time }); ok {
		return own.Now
	}
	return nil
}

// Destruct closes the store when the last configuration and the last call have
// let go of it.
func (n *Node) Destruct() error {
	defer close(n.closed)
	ctx, cancel := context.WithTimeout(context.Background(), settlePatience)
	defer cancel()
	return n.close(ctx)
}

// close ends what works in the background, waits until what calls owe is
// durable, and closes the store.
func (n *Node) close(ctx context.Context) error {
	n.closing.Do(func() {
		n.end()
		<-n.swept
		n.Ledger.Close(ctx)
	})
	return n.Store.Close()
}

// sweepEvery is how often the node looks after what time alone has changed.
const sweepEvery = time.Minute

// sweep looks after what time alone has changed, until the node is closed.
func (n *Node) sweep() {
	defer close(n.swept)
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-n.life.Done():
			return
		case <-tick.C:
			n.Ledger.Sweep()
			if err := n.Billing.Sweep(n.life); err != nil && n.life.Err() == nil {
				n.logger.Error("looking after subscriptions and orders", zap.Error(err))
			}
		}
	}
}

// When the process ends, open calls have had the servers' grace period. Then
// they may still end by themselves for exitPatience; those that do not are
// cancelled, and have settlePatience to tell their callers and to settle.
const (
	exitPatience   = 8 * time.Second
	settlePatience = 2 * time.Second
)

// drain refuses new calls, sees the open ones to their end, and closes the store.
func (n *Node) drain(ctx context.Context) {
	n.draining.Store(true)
	if !n.settled(ctx, exitPatience) {
		n.end()
		if !n.settled(ctx, settlePatience) {
			n.logger.Error("calls were still open at exit", zap.Int64("calls", n.calls.Load()))
		}
	}
	if err := n.close(ctx); err != nil {
		n.logger.Error("closing the store", zap.Error(err))
	}
}

// settled waits until no call is open, but not longer than patience.
func (n *Node) settled(ctx context.Context, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for n.calls.Load() > 0 {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
	return true
}

// OnEnd arranges that fn is called when the process cannot wait for a call any
// longer, unless stop is called first.
func (n *Node) OnEnd(fn func()) (stop func() bool) { return context.AfterFunc(n.life, fn) }

// Ready returns why no more calls should be sent here, or nil.
func (n *Node) Ready() error {
	if caddy.Exiting() {
		return errDraining
	}
	return n.open()
}

// open returns why no call can be taken, or nil. While the process ends, calls
// are taken as long as servers are up: an operator's shutdown_delay is for them.
func (n *Node) open() error {
	if n.draining.Load() {
		return errDraining
	}
	if err := n.Store.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

var errDraining = errors.New("draining: the process is about to end")

// ReserveBody takes n bytes from the budget for request bodies, if it has them.
// They are given back with a negative n.
func (n *Node) ReserveBody(bytes, budget int64) bool { return reserve(&n.bodyBytes, bytes, budget) }

// ReserveStranger does so from another budget, for the bodies of callers who are
// not known yet: they must not be able to use up that of those who are.
func (n *Node) ReserveStranger(bytes, budget int64) bool {
	return reserve(&n.strangerBytes, bytes, budget)
}

func reserve(taken *atomic.Int64, bytes, budget int64) bool {
	if taken.Add(bytes) > budget && bytes > 0 {
		taken.Add(-bytes)
		return false
	}
	return true
}

// lease is a configuration's hold on a node. It lasts until the configuration
// has stopped and its last call has ended.
type lease struct {
	logger *zap.Logger
	opener storage.Opener
	keys   masterKeys
	opened chan struct{} // closed once start has run
	node   *Node         // nil when start failed; written before opened is closed
	holds  atomic.Int64  // one for the configuration, one for each call
	once   sync.Once
}

func newLease(logger *zap.Logger) *lease {
	return &lease{logger: logger, opened: make(chan struct{})}
}

func (l *lease) start(opener storage.Opener, keys masterKeys) error {
	defer close(l.opened)
	l.opener, l.keys = opener, keys
	node, err := l.take()
	if err != nil {
		return err
	}
	l.node = node
	l.holds.Store(1)
	return nil
}

// take joins the node of the pool, opening it if it is not there.
func (l *lease) take() (*Node, error) {
	value, joined, err := nodes.LoadOrNew(l.opener.Key(), func() (caddy.Destructor, error) {
		return openNode(context.Background(), l.opener, l.keys, l.logger)
	})
	if err != nil {
		return nil, err
	}
	if joined {
		l.logger.Debug("joined the open node", zap.String("store", l.opener.Key()))
	}
	return value.(*Node), nil
}

// stop gives back the configuration's own hold. Caddy calls it twice, as Stop
// and as Cleanup, and also when the start has failed. When the process ends it
// does nothing: apps stop in random order, servers may still be serving, and
// the hook above closes the store after all of them.
func (l *lease) stop() {
	if caddy.Exiting() {
		return
	}
	l.once.Do(func() {
		if l.node != nil {
			l.release()
		}
	})
}

func (l *lease) release() {
	if l.holds.Add(-1) == 0 {
		l.giveBack()
	}
}

func (l *lease) giveBack() {
	if _, err := nodes.Delete(l.opener.Key()); err != nil {
		l.logger.Error("closing the store", zap.Error(err))
	}
}

// openPatience is how long a call waits for a node that is being opened: apps
// start in random order, so the server may listen before the store is open.
const openPatience = 10 * time.Second

// hold returns the node with a hold on it, and how to give that back.
func (l *lease) hold(ctx context.Context) (*Node, func(), error) {
	select {
	case <-l.opened:
	default:
		timer := time.NewTimer(openPatience)
		defer timer.Stop()
		select {
		case <-l.opened:
		case <-timer.C:
			return nil, nil, errors.New("the store is still being opened")
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	if l.node == nil {
		return nil, nil, errors.New("the store could not be opened")
	}
	for {
		holds := l.holds.Load()
		if holds == 0 {
			// A request that came in after the last one of a stopped
			// configuration had ended: it takes a hold of its own.
			node, err := l.take()
			return node, l.giveBack, err
		}
		if l.holds.CompareAndSwap(holds, holds+1) {
			return l.node, l.release, nil
		}
	}
}

// Enter lets a call in: it returns the node, which stays open until leave is
// called. While the store is opened it waits; when the store has failed or the
// process ends it refuses.
func (a *App) Enter(ctx context.Context) (node *Node, leave func(), refused *fault.Fault) {
	node, release, err := a.lease.hold(ctx)
	if err != nil {
		a.logger.Error("a call found no store", zap.Error(err))
		return nil, nil, closedNow
	}
	node.calls.Add(1)
	leave = func() {
		node.calls.Add(-1)
		release()
	}
	if node.open() != nil { // the store has logged why
		leave()
		return nil, nil, closedNow
	}
	return node, leave, nil
}

// closedNow is all that a caller hears of a store that is not there.
var closedNow = fault.New(fault.StoreUnavailable, "the gateway cannot take calls now; try again later").After(5 * time.Second)

// Node returns the node without counting a call, for health and admin routes;
// release gives it back.
func (a *App) Node(ctx context.Context) (node *Node, release func(), err error) {
	return a.lease.hold(ctx)
}

// probeEvery is how often a readiness probe writes at most: probes come from
// many balancers, and a synced write is not free.
const probeEvery = time.Second

// Probe writes to the store and returns why that failed, or nil. Within a second
// of the last probe it answers as that did.
func (n *Node) Probe(ctx context.Context) error {
	n.probe.Lock()
	defer n.probe.Unlock()
	if time.Since(n.probe.at) < probeEvery {
		return n.probe.err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openPatience)
	defer cancel()
	n.probe.err = n.Store.Update(ctx, func(t storage.Txn) error {
		return t.Set([]byte("meta/probe"), []byte(n.Store.Now().UTC().Format(time.RFC3339)), time.Time{})
	})
	n.probe.at = time.Now()
	return n.probe.err
}
