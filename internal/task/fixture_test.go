package task

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/callback"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/verify"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// world is an engine over a store in memory with planned faults, a mock service and
// a receiver of callbacks, in a synctest bubble. The store, the service and the
// receiver survive the end of the process.
type world struct {
	t      testing.TB
	disk   *memory.Engine
	config Config

	*process // the current one

	service *mockService
	hooks   *receiver

	logger  *zap.Logger  // nil: the log is printed from logLevel on
	damaged bool         // the test has damaged the store
	ahead   atomic.Int64 // offset of the clock
}

// process has the parts that a kill ends.
type process struct {
	*Engine
	faulty *storagetest.Faulty
	power  *power
	store  *storage.Store
	ledger *ledger.Ledger
}

// power is a storage engine that can lose its power at any moment.
type power struct {
	storage.Engine
	off   atomic.Bool
	views atomic.Int64 // number of reads
}

var errPower = errors.New("no power")

// Sole implements [storage.Sole], as the engine of the gateway does.
func (p *power) Sole() bool { return true }

func (p *power) View(ctx context.Context, fn func(storage.Reader) error) error {
	if p.off.Load() {
		return errPower
	}
	p.views.Add(1)
	return p.Engine.View(ctx, fn)
}

func (p *power) Update(ctx context.Context, fn func(storage.Txn) error) error {
	if p.off.Load() {
		return errPower
	}
	return p.Engine.Update(ctx, func(t storage.Txn) error {
		err := fn(t)
		if err == nil && p.off.Load() {
			return errPower
		}
		return err
	})
}

func (*power) Close() error { return nil } // the disk outlives the store

// The user of most tests, and the user's keys.
const (
	ann     = "user_ann"
	annKey  = "key_ann1"
	annKey2 = "key_ann2"
	bobKey  = "key_bob1"
)

// in runs fn in a new world. At the end the store must be consistent.
func in(t *testing.T, fn func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, disk: memory.New(), service: newMockService(), hooks: newReceiver()}
		w.config = Config{Backends: []Backend{{Name: "works", Backend: w.service, MaxRunning: 8}}}
		w.start()
		defer func() { w.stop() }() // also after Fatal: synctest waits for all goroutines
		w.credit(ann, 1000)
		fn(w)
		w.checkConsistent()
	})
}

// start starts the process.
func (w *world) start() {
	w.t.Helper()
	p := &process{}
	p.power = &power{Engine: w.disk}
	p.faulty = storagetest.NewFaulty(p.power)
	p.store = storage.New(p.faulty, storage.Options{Gather: -1, Clock: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }})
	var err error
	if p.ledger, err = ledger.Open(context.Background(), p.store, ledger.Options{}); err != nil {
		w.t.Fatal(err)
	}
	logger := w.logger
	if logger == nil {
		logger = zaptest.NewLogger(w.t, zaptest.Level(logLevel))
	}
	p.Engine = Open(p.store, p.ledger, Options{Logger: logger})
	if err := p.Serve(w.config); err != nil {
		w.t.Fatal(err)
	}
	w.process = p
}

// logLevel is the level from which the log is printed. Set it to -1 for debugging.
const logLevel = zap.DPanicLevel

// serve changes the configuration, as a reload does.
func (w *world) serve(change func(c *Config)) {
	w.t.Helper()
	change(&w.config)
	if err := w.Serve(w.config); err != nil {
		w.t.Fatal(err)
	}
}

// stop ends the process gracefully.
func (w *world) stop() { w.end(context.Background()) }

// kill ends the process as a power cut does.
func (w *world) kill() {
	w.power.off.Store(true)
	w.closeDead()
}

// closeDead closes the parts of a process without power.
func (w *world) closeDead() {
	w.power.off.Store(true)
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	w.end(dead)
}

func (w *world) end(ctx context.Context) {
	w.Engine.Close(ctx)
	w.ledger.Close(ctx)
	_ = w.store.Close()
}

// checkConsistent checks the store for contradictions.
func (w *world) checkConsistent() {
	w.t.Helper()
	if w.damaged || w.store.Err() != nil {
		return
	}
	synctest.Wait()
	for _, p := range w.problems() {
		w.t.Error(p)
	}
	if n := w.ledger.Stats().Mismatches; n != 0 {
		w.t.Errorf("%d debits did not find what was promised", n)
	}
}

func (w *world) problems() (list []string) {
	w.t.Helper()
	err := w.store.View(context.Background(), func(r storage.Reader) error {
		_, err := ledgerverify.Verify(context.Background(), r, w.store.Now(),
			func(p ledgerverify.Problem) { list = append(list, p.Where+": "+p.What) },
			func(r storage.Reader, _ func(ledgerverify.Problem)) error {
				return verify.Tasks(r, w.store.Now(), func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) })
			})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// credit gives a user money.
func (w *world) credit(user string, amount money.Amount) {
	w.t.Helper()
	err := w.ledger.Update(context.Background(), user, nil, func(t *ledger.Txn) error {
		_, err := journal.Book(t, w.store.Now(), journal.Transfer{
			ID: journal.IDOf("credit", user), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount),
		})
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// has checks the balance of ann's wallet, and the part of it that is held.
func (w *world) has(balance, held money.Amount) {
	w.t.Helper()
	f, err := w.ledger.Funds(context.Background(), ann)
	if err != nil {
		w.t.Fatal(err)
	}
	if f.Wallet.Balance != balance || f.Wallet.Held != held {
		w.t.Fatalf("the wallet has %d, %d held; want %d, %d held", f.Wallet.Balance, f.Wallet.Held, balance, held)
	}
}

// video is a submission of ann for 100; with changes one.
func video() Submission {
	return Submission{
		Payer: ledger.Payer{User: ann}, Key: annKey, Backend: "works", Quote: flat(100),
		Job: backends.Job{Kind: backends.Video, Model: "video-x-1", Prompt: "a cat"},
	}
}

// flat is a price for each request.
func flat(price money.Amount) catalog.Quote {
	return catalog.Quote{Kind: catalog.Video, Hold: price, Request: price, Asked: catalog.Work{Count: 1}}
}

func with(change func(s *Submission)) Submission {
	s := video()
	change(&s)
	return s
}

// long makes the body of a submission too long for the record.
func long(s *Submission) { s.Job.Prompt = strings.Repeat("a cat and ", maxEnclosed/10) }

func (w *world) submit(s Submission) (*record.Task, error) {
	task, _, err := w.Submit(context.Background(), s)
	return task, err
}

func (w *world) must(s Submission) *record.Task {
	w.t.Helper()
	task, err := w.submit(s)
	if err != nil {
		w.t.Fatal(err)
	}
	return task
}

func (w *world) get(id string) *record.Task {
	w.t.Helper()
	task, err := w.Get(context.Background(), record.OfUser(ann), id)
	if err != nil {
		w.t.Fatal(err)
	}
	return task
}

// is checks the status of a task.
func (w *world) is(id string, want record.State) *record.Task {
	w.t.Helper()
	task := w.get(id)
	if task.Status != want {
		w.t.Fatalf("the task is %s, want %s: %+v", task.Status, want, task)
	}
	return task
}

// count returns the number of ann's tasks that match a filter, including expired
// tasks that are not removed yet.
func (w *world) count(f Filter) int {
	w.t.Helper()
	_, total, err := w.TaskPage(context.Background(), ann, f, 0, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return total
}

// until sleeps until a task has a status, at most for most.
func (w *world) until(id string, want record.State, most time.Duration) *record.Task {
	w.t.Helper()
	for passed := time.Duration(0); passed < most; passed += time.Second {
		if w.get(id).Status == want {
			break
		}
		w.sleep(time.Second)
	}
	return w.is(id, want)
}

// sleep lets time pass and waits until all goroutines block.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) record(id string) *record.Record {
	w.t.Helper()
	var rec *record.Record
	if err := w.store.View(context.Background(), func(r storage.Reader) (err error) {
		rec, err = record.Tasks.Get(r, id)
		return err
	}); err != nil || rec == nil {
		w.t.Fatalf("task %s: %v", id, err)
	}
	return rec
}

func codeOf(err error) fault.Code {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.Code
	}
	return ""
}

// refused checks the code of a refusal.
func (w *world) refused(err error, want fault.Code) {
	w.t.Helper()
	if codeOf(err) != want {
		w.t.Fatalf("refused with %v, want %s", err, want)
	}
}

// listen gives ann's key a callback address.
func (w *world) listen() {
	w.t.Helper()
	w.hooks.mu.Lock()
	w.hooks.address[annKey] = callback.Address{URL: "https://ann.example.com/hook", Secrets: [][]byte{[]byte("current secret")}}
	w.hooks.mu.Unlock()
	w.serve(func(c *Config) { c.Callbacks, c.Client = w.hooks, &http.Client{Transport: w.hooks} })
}

func moneyOf(n int) money.Amount { return money.Amount(n) }

// insert writes a task without counts.
func insert(t storage.Txn, rec *record.Record) error { return record.Tasks.Put(t, nil, rec) }
