package storagetest

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// RunStore tests a [storage.Store] over the engines that open returns, with and
// without [storage.Sole].
func RunStore(t *testing.T, open func(t *testing.T) storage.Engine) {
	t.Run("sole", func(t *testing.T) { runStore(t, open) })
	t.Run("shared", func(t *testing.T) {
		runStore(t, func(t *testing.T) storage.Engine { return shared{open(t)} })
	})
}

// shared hides that an engine is [storage.Sole].
type shared struct{ storage.Engine }

func runStore(t *testing.T, open func(t *testing.T) storage.Engine) {
	for name, test := range transactions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newFixture(t, openAndClose(t, open)).store(storage.Options{}))
		})
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, f *fixture)
	}{
		{"posts are committed after a flush", postAndFlush},
		{"an update ends the wait of posts and shares their commit", updateEndsGather},
		{"closures run in order and see earlier writes", batchOrder},
		{"the size of a batch is limited", batchLimit},
		{"a failed closure is rolled back alone", oneRollsBack},
		{"a panic is returned to its caller", onePanics},
		{"the closures of one batch match a map", batchMatchesModel},
		{"transfers by update and post conserve the sum", storeTransfers},
		{"backup", storeBackup},

		{"a closure runs again after a conflict", conflictAgain},
		{"a persistent conflict is returned", persistentConflict},
		{"a closure runs again after a conflict in a read", conflictInReading},
		{"a closure that could not read is rolled back", readFailure},
		{"a batch that is too large is split", splitInHalves},
		{"a refused write affects no other closure", refusedWrite},
		{"an unknown outcome is returned to the whole batch", unknownOutcome},
		{"low space is returned and does not stop the store", lowSpace},
		{"histories with unknown outcomes are linearisable", unknownHistories},
		{"acknowledged writes are committed, refused ones are not", randomFaults},
		{"acknowledged writes survive a crash", crash},
		{"a failed sync stops the store", failStop},
		{"a view during the failure returns an error", viewAcrossFailure},
		{"a backup during the failure returns an error", backupAcrossFailure},
		{"a closure that ends its goroutine stops the store", goexit},
		{"a callback that ends its goroutine stops the store", goexitOfDone},
		{"an earlier callback does not run again", goexitAfterSplit},

		{"a closure does not run if its context ends first", cancelledInQueue},
		{"a caller gets the outcome if its context ends later", cancelledAfterBegin},
		{"a full queue blocks callers", fullQueue},
		{"a failure releases callers that wait for the queue", failureFreesWaiters},
		{"close drains the queue", closeDrains},
		{"close waits for views", closeWaitsForViews},
		{"a panic of a callback is recovered", donePanics},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newFixture(t, openAndClose(t, open)))
		})
	}
}

// fixture is the engine of a store under test, with planned faults.
type fixture struct {
	*Faulty
	t *testing.T
}

func newFixture(t *testing.T, e storage.Engine) *fixture { return &fixture{NewFaulty(e), t} }

// store returns a store over the engine until the test ends.
func (f *fixture) store(opts storage.Options) *storage.Store {
	s := storage.New(f.Faulty, opts)
	f.t.Cleanup(func() { s.Close() })
	return s
}

// hold blocks the combiner until release is called, so that a test decides the
// content of the next batch.
func hold(t *testing.T, s *storage.Store) (release func()) {
	t.Helper()
	entered, gate := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go s.Update(t.Context(), func(storage.Txn) error {
		once.Do(func() { close(entered) })
		<-gate
		return nil
	})
	<-entered
	release = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(release) // before the store is closed, in case the test fails
	return release
}

// posts collects the outcomes of posted closures.
type posts struct {
	t         *testing.T
	s         *storage.Store
	wg        sync.WaitGroup
	mu        sync.Mutex
	outcomes  []error // in the order of posting
	callbacks []int   // number of callbacks of each
}

// post posts fn, which must be accepted.
func (p *posts) post(fn func(storage.Txn) error) {
	p.t.Helper()
	p.wg.Add(1)
	p.mu.Lock()
	i := len(p.outcomes)
	p.outcomes, p.callbacks = append(p.outcomes, nil), append(p.callbacks, 0)
	p.mu.Unlock()
	err := p.s.Post(p.t.Context(), fn, func(err error) {
		p.mu.Lock()
		p.outcomes[i] = err
		p.callbacks[i]++
		first := p.callbacks[i] == 1
		p.mu.Unlock()
		if first {
			p.wg.Done()
		}
	})
	if err != nil {
		p.t.Fatalf("post: %v", err)
	}
}

// set posts a closure that sets a key.
func (p *posts) set(key, val string) {
	p.t.Helper()
	p.post(setting(key, val))
}

// wait waits for the outcomes. Each callback must be called once.
func (p *posts) wait() []error {
	p.t.Helper()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, n := range p.callbacks {
		if n != 1 {
			p.t.Errorf("the callback of post %d ran %d times", i, n)
		}
	}
	return p.outcomes
}

// succeed waits and fails the test unless all closures were committed.
func (p *posts) succeed() {
	p.t.Helper()
	for i, err := range p.wait() {
		if err != nil {
			p.t.Errorf("post %d: %v", i, err)
		}
	}
}

// setting returns a closure that sets a key.
func setting(key, val string) func(storage.Txn) error {
	return func(txn storage.Txn) error { return txn.Set([]byte(key), []byte(val), never) }
}

// until calls runtime.Gosched until done returns true.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for !done() {
		if t.Context().Err() != nil {
			t.Fatal("the condition never became true")
		}
		runtime.Gosched()
	}
}

// running is a call on another goroutine.
type running struct{ err chan error }

func start(call func() error) running {
	r := running{make(chan error, 1)}
	go func() { r.err <- call() }()
	return r
}

func (r running) wait() error { return <-r.err }

// cancelled returns a context that has ended.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
