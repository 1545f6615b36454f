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
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/internal/task"
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
	Tasks     *task.Engine
	Media     *media.Archive
	Rates     *limit.Table
	Detached  limit.KeyedSemaphore // of calls that run on without their callers, by user
	Keyring   *seal.Keyring

	Bodies BodyBudgets

	calls    atomic.Int64 // under way
	verified atomic.Int64 // problems that the last verify found
	draining atomic.Bool
	logger   *zap.Logger

	key    string        // of the storage
	closed chan struct{} // closed when the store is

	life context.Context // of open calls; ends when the process cannot wait for them
	end  context.CancelCauseFunc

	closing sync.Once
	swept   chan struct{} // closed when the sweeper has ended

	serving  serving // the configurations by which tasks are driven
	adopting sync.Mutex
	adopted  atomic.Pointer[App] // the configuration that was live last
	counting counting            // of what is not over
	usable   usable              // what backends answered last

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
		beginExit()      // the last configuration may have watched for nothing
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

// openNode opens the engine and loads what stands in memory, for the
// configuration a. The pool sees to it that a place is opened once at a time; one
// that is still closing is awaited.
func openNode(ctx context.Context, a *App) (*Node, error) {
	opener, logger := a.opener, a.logger
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
	node.Bodies.clock(store.Now)
	node.life, node.end = context.WithCancelCause(context.Background())
	if err := storage.CheckFormat(ctx, store); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	if node.Keyring, err = a.Secrets.open(ctx, store, opener); err != nil {
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
	node.configure(a)
	node.Billing = billing.NewDesk(store, node.Ledger, node.Directory, logger.Named("billing"))
	node.Tasks = task.Open(store, node.Ledger, task.Options{Told: node.Directory.Told, Logger: logger.Named("tasks")})
	node.Media = media.Open(store, media.Options{Logger: logger.Named("media")})
	if err := node.drive(a, nil); err != nil { // who opens the node may have stopped already
		node.closeTasks(ctx)
		node.Ledger.Close(ctx)
		return nil, errors.Join(err, store.Close())
	}
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
		n.end(ErrEnding)
		<-n.swept
		n.closeTasks(ctx)
		n.Ledger.Close(ctx)
	})
	return n.Store.Close()
}

// closeTasks lets what is under way at backends end: a job that is being handed
// over would be in doubt at the next start. What takes longer, as copies do, is
// taken up again then.
func (n *Node) closeTasks(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), exitPatience)
	defer cancel()
	n.Tasks.Close(ctx)
	n.Media.Close()
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
			for _, room := range []struct {
				what  string
				sweep func(context.Context) error
			}{
				{"keeping records for as long as is configured", n.keep},
				{"looking after subscriptions and orders", n.Billing.Sweep},
				{"removing old tasks", n.Tasks.Sweep},
				{"removing old files", n.Media.Sweep},
			} {
				if err := room.sweep(n.life); err != nil && n.life.Err() == nil {
					n.logger.Error(room.what, zap.Error(err))
				}
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
		n.end(ErrEnding)
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

// ErrEnding is the cause by which a [Lifetime] ends.
var ErrEnding = errors.New("the process ends")

// Lifetime is a context that ends, by [ErrEnding], when the process cannot wait
// for a call any longer. It has the values of another context, but does not end with
// it.
type Lifetime struct {
	context.Context // ends it
	values          context.Context
}

// Lifetime returns one with the values of ctx.
func (n *Node) Lifetime(ctx context.Context) Lifetime { return Lifetime{n.life, ctx} }

// Value implements context.Context. Contexts that are made of l ask for the one
// that cancels them by a key of package context: they find it first, and need no
// goroutine.
func (l Lifetime) Value(key any) any {
	if value := l.Context.Value(key); value != nil {
		return value
	}
	return l.values.Value(key)
}

// Ready returns why no more calls should be sent here, or nil.
func (n *Node) Ready() error {
	if caddy.Exiting() {
		return ErrDraining
	}
	return n.open()
}

// open returns why no call can be taken, or nil. While the process ends, calls
// are taken as long as servers are up: an operator's shutdown_delay is for them.
func (n *Node) open() error {
	if n.draining.Load() {
		return ErrDraining
	}
	if err := n.Store.Err(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// ErrDraining says that the process is about to end.
var ErrDraining = errors.New("draining: the process is about to end")

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
