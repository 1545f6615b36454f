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

// fixture is an engine over a store in memory with planned faults, a mock service and
// a receiver of callbacks, in a synctest bubble. The store, the service and the
// receiver remain when the process ends.
type fixture struct {
	t      testing.TB
	disk   *memory.Engine
	config Config

	*process // the current process

	service *mockService
	hooks   *receiver

	logger  *zap.Logger  // nil: the log is printed from logLevel on
	damaged bool         // the test has damaged the store: it is not verified
	ahead   atomic.Int64 // offset of the clock
}

// process has the parts that end with the process.
type process struct {
	*Engine
	faulty *storagetest.Faulty
	power  *power
	store  *storage.Store
	ledger *ledger.Ledger
}

// power is a storage engine that fails when its power is off.
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

func (*power) Close() error { return nil } // the disk remains when the store is closed

// The user of most tests, and the user's keys.
const (
	ann     = "user_ann"
	annKey  = "key_ann1"
	annKey2 = "key_ann2"
	bobKey  = "key_bob1"
)

// withFixture runs fn with a new fixture. At the end the store must be consistent.
func withFixture(t *testing.T, fn func(f *fixture)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, disk: memory.New(), service: newMockService(), hooks: newReceiver()}
		f.config = Config{Backends: []Backend{{Name: "works", Backend: f.service, MaxRunning: 8}}}
		f.start()
		defer func() { f.stop() }() // also after Fatal: synctest waits for all goroutines
		f.credit(ann, 1000)
		synctest.Wait() // the driver has found nothing to do
		fn(f)
		f.checkConsistent()
	})
}

// start starts the process.
func (f *fixture) start() {
	f.t.Helper()
	p := &process{}
	p.power = &power{Engine: f.disk}
	p.faulty = storagetest.NewFaulty(p.power)
	p.store = storage.New(p.faulty, storage.Options{Gather: -1, Clock: func() time.Time { return time.Now().Add(time.Duration(f.ahead.Load())) }})
	var err error
	if p.ledger, err = ledger.Open(context.Background(), p.store, ledger.Options{}); err != nil {
		f.t.Fatal(err)
	}
	logger := f.logger
	if logger == nil {
		logger = zaptest.NewLogger(f.t, zaptest.Level(logLevel))
	}
	p.Engine = Open(p.store, p.ledger, Options{Logger: logger})
	if err := p.Serve(f.config); err != nil {
		f.t.Fatal(err)
	}
	f.process = p
}

// logLevel is the level from which the log is printed. Set it to -1 for debugging.
const logLevel = zap.DPanicLevel

// serve changes the configuration, as a reload does.
func (f *fixture) serve(change func(c *Config)) {
	f.t.Helper()
	synctest.Wait() // a run of a driver uses the configuration that it began with
	change(&f.config)
	if err := f.Serve(f.config); err != nil {
		f.t.Fatal(err)
	}
}

// stop ends the process gracefully.
func (f *fixture) stop() { f.end(context.Background()) }

// kill ends the process as a power cut does.
func (f *fixture) kill() {
	f.power.off.Store(true)
	f.closeDead()
}

// closeDead closes the parts of a process without power.
func (f *fixture) closeDead() {
	f.power.off.Store(true)
	dead, cancel := context.WithCancel(context.Background())
	cancel()
	f.end(dead)
}

func (f *fixture) end(ctx context.Context) {
	f.Engine.Close(ctx)
	f.ledger.Close(ctx)
	_ = f.store.Close()
}

// checkConsistent checks the store for inconsistencies.
func (f *fixture) checkConsistent() {
	f.t.Helper()
	if f.damaged || f.store.Err() != nil {
		return
	}
	synctest.Wait()
	for _, p := range f.problems() {
		f.t.Error(p)
	}
	if n := f.ledger.Stats().Mismatches; n != 0 {
		f.t.Errorf("the ledger counts %d mismatches", n)
	}
}

func (f *fixture) problems() (list []string) {
	f.t.Helper()
	err := f.store.View(context.Background(), func(r storage.Reader) error {
		_, err := ledgerverify.Verify(context.Background(), r, f.store.Now(),
			func(p ledgerverify.Problem) { list = append(list, p.Where+": "+p.What) },
			func(r storage.Reader, _ func(ledgerverify.Problem)) error {
				return verify.Tasks(r, f.store.Now(), func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) })
			})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
	return list
}

// credit gives a user money.
func (f *fixture) credit(user string, amount money.Amount) {
	f.t.Helper()
	err := f.ledger.Update(context.Background(), user, nil, func(t *ledger.Txn) error {
		_, err := journal.Book(t, f.store.Now(), journal.Transfer{
			ID: journal.IDOf("credit", user), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), amount),
		})
		return err
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

// checkWallet checks the balance of ann's wallet and the amount that is held.
func (f *fixture) checkWallet(balance, held money.Amount) {
	f.t.Helper()
	funds, err := f.ledger.Funds(context.Background(), ann)
	if err != nil {
		f.t.Fatal(err)
	}
	if funds.Wallet.Balance != balance || funds.Wallet.Held != held {
		f.t.Fatalf("the wallet has %d, %d held; want %d, %d held", funds.Wallet.Balance, funds.Wallet.Held, balance, held)
	}
}

// video returns a submission of ann for 100; with returns a changed one.
func video() Submission {
	return Submission{
		Payer: ledger.Payer{User: ann}, Key: annKey, Backend: "works", Quote: flat(100),
		Job: backends.Job{Kind: backends.Video, Model: "video-x-1", Prompt: "a cat"},
	}
}

// flat returns a price per request.
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

func (f *fixture) submit(s Submission) (*record.Task, error) {
	task, _, err := f.Submit(context.Background(), s)
	return task, err
}

func (f *fixture) mustSubmit(s Submission) *record.Task {
	f.t.Helper()
	task, err := f.submit(s)
	if err != nil {
		f.t.Fatal(err)
	}
	return task
}

func (f *fixture) get(id string) *record.Task {
	f.t.Helper()
	task, err := f.Get(context.Background(), record.OfUser(ann), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return task
}

// wantStatus checks the status of a task.
func (f *fixture) wantStatus(id string, want record.State) *record.Task {
	f.t.Helper()
	task := f.get(id)
	if task.Status != want {
		f.t.Fatalf("the task is %s, want %s: %+v", task.Status, want, task)
	}
	return task
}

// count returns the number of ann's tasks that match a filter, including expired
// tasks that are not removed yet.
func (f *fixture) count(filter Filter) int {
	f.t.Helper()
	_, total, err := f.TaskPage(context.Background(), ann, filter, 0, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	return total
}

// waitStatus sleeps until a task has a status, at most for a time limit.
func (f *fixture) waitStatus(id string, want record.State, limit time.Duration) *record.Task {
	f.t.Helper()
	for passed := time.Duration(0); passed < limit; passed += time.Second {
		if f.get(id).Status == want {
			break
		}
		f.sleep(time.Second)
	}
	return f.wantStatus(id, want)
}

// sleep lets time pass and waits until all goroutines block.
func (f *fixture) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (f *fixture) record(id string) *record.Record {
	f.t.Helper()
	var rec *record.Record
	if err := f.store.View(context.Background(), func(r storage.Reader) (err error) {
		rec, err = record.Tasks.Get(r, id)
		return err
	}); err != nil || rec == nil {
		f.t.Fatalf("task %s: %v", id, err)
	}
	return rec
}

func codeOf(err error) fault.Code {
	if refused, ok := errors.AsType[*fault.Fault](err); ok {
		return refused.Code
	}
	return ""
}

// checkCode checks the code of a fault.
func (f *fixture) checkCode(err error, want fault.Code) {
	f.t.Helper()
	if codeOf(err) != want {
		f.t.Fatalf("the error is %v, want %s", err, want)
	}
}

// listen gives ann's key a callback address.
func (f *fixture) listen() {
	f.t.Helper()
	f.hooks.mu.Lock()
	f.hooks.address[annKey] = callback.Address{URL: "https://ann.example.com/hook", Secrets: [][]byte{[]byte("current secret")}}
	f.hooks.mu.Unlock()
	f.serve(func(c *Config) { c.Callbacks, c.Client = f.hooks, &http.Client{Transport: f.hooks} })
}

func moneyOf(n int) money.Amount { return money.Amount(n) }

// insert writes a task without counts.
func insert(t storage.Txn, rec *record.Record) error { return record.Tasks.Put(t, nil, rec) }
