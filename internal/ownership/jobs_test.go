package ownership

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

const user, price = "usr_1", money.Amount(5)

// fixture is a store with a ledger and objects. The wallet of user has 100.
type fixture struct {
	*Objects
	t     *testing.T
	clock *storagetest.Clock
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clock := storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	store := storage.New(memory.New(), storage.Options{Clock: clock.Now, Gather: -1})
	t.Cleanup(func() { store.Close() })
	f := &fixture{t: t, clock: clock}
	f.open(store)
	err := f.ledger.Update(t.Context(), user, nil, func(tx *ledger.Txn) error {
		_, err := journal.Book(tx, clock.Now(), journal.Transfer{
			ID: journal.TimedID(clock.Now()), Kind: journal.Credit, User: user, Legs: journal.LegsBetween(journal.Operator, journal.Wallet(user), 100),
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// open opens the ledger and the objects of a store, as a start of the gateway does.
func (f *fixture) open(store *storage.Store) {
	f.t.Helper()
	l, err := ledger.Open(f.t.Context(), store, ledger.Options{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { l.Close(context.Background()) })
	if f.Objects, err = Open(f.t.Context(), store, l, zap.NewNop()); err != nil {
		f.t.Fatal(err)
	}
}

// submit submits a response and detaches its job.
func (f *fixture) submit(id string) *Running {
	f.t.Helper()
	reservation, err := f.ledger.Reserve(f.t.Context(), ledger.Payer{User: user}, 10)
	if err != nil {
		f.t.Fatal(err)
	}
	call := journal.Call{ID: "req_" + id, Time: f.clock.Now().UnixMilli(), User: user, Key: "key_1", Model: "m", Route: "responses", Status: 200}
	origin := Object{User: user, Key: "key_1", Job: &Job{Call: call, Payer: ledger.Payer{User: user}, Amount: 10, Facts: json.RawMessage(`{}`)}}
	r, err := f.Submit(f.t.Context(), origin, reservation, time.Hour, []Found{{id, Response}, {"msg_" + id, Item}})
	if err != nil {
		f.t.Fatal(err)
	}
	if r != nil {
		f.Detach(r)
	}
	return r
}

// ended is a poll that finds the end of each response.
func ended(_ context.Context, r *Running) (State, Result) {
	call := r.Object.Job.Call
	call.Ended, call.Usage = usage.Complete, usage.Reported
	return Ended, Result{Call: call, Cost: price}
}

func missing(context.Context, *Running) (State, Result) { return Missing, Result{} }

// wallet returns the balance when all settlements are durable.
func (f *fixture) wallet() (balance money.Amount) {
	f.t.Helper()
	f.ledger.Close(f.t.Context())
	if err := f.store.View(f.t.Context(), func(r storage.Reader) error {
		state, err := journal.ReadState(r, journal.Wallet(user))
		balance = state.Balance
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
	return balance
}

func (f *fixture) owns(id string, kind Kind, who string) bool {
	f.t.Helper()
	found, err := f.Find(f.t.Context(), who, Found{id, kind})
	if err != nil {
		f.t.Fatal(err)
	}
	return found[0] != nil
}

func TestARestartSettlesAJobOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("resp_1")
	before := f.Objects
	f.open(f.store) // the first process is gone, or still there
	if n, reserved := f.Jobs(); n != 1 || reserved != 10 {
		t.Errorf("after the restart there are %d jobs with %v", n, reserved)
	}
	if _, err := f.ledger.Reserve(t.Context(), ledger.Payer{User: user}, 91); err == nil {
		t.Error("the reserved money can be reserved again")
	}
	if !f.PollNow(t.Context(), "resp_1", ended) {
		t.Error("the job is not settled")
	}
	if !before.PollNow(t.Context(), "resp_1", ended) {
		t.Error("the job of the other process is not settled")
	}
	before.ledger.Close(t.Context())
	if got := f.wallet(); got != 100-price {
		t.Errorf("the balance is %v", got)
	}
	f.open(f.store)
	if n, _ := f.Jobs(); n != 0 || !f.owns("resp_1", Response, user) {
		t.Errorf("after another restart there are %d jobs", n)
	}
}

func TestAJobThatIsUnknownToTheVendorIsGivenUp(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("resp_1")
	for i := range maxMissing {
		if settled := f.PollNow(t.Context(), "resp_1", missing); settled != (i == maxMissing-1) {
			t.Fatalf("after poll %d settled is %v", i, settled)
		}
	}
	f.submit("resp_2")
	f.clock.Advance(GiveUp + time.Second)
	if !f.PollNow(t.Context(), "resp_2", func(context.Context, *Running) (State, Result) { return Pending, Result{} }) {
		t.Error("a job is not given up after its time")
	}
	if got := f.wallet(); got != 100 {
		t.Errorf("the balance is %v", got)
	}
}

func TestARepeatedSubmissionIsNotChargedAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("resp_1")
	if f.submit("resp_1") != nil {
		t.Error("a repeated response has a job of its own")
	}
	f.PollNow(t.Context(), "resp_1", ended)
	if f.submit("resp_1") != nil {
		t.Error("a repeated response has a job of its own after the settlement")
	}
	if got := f.wallet(); got != 100-price {
		t.Errorf("the balance is %v", got)
	}
}

func TestADeletedResponseIsStillCharged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("resp_1")
	if err := f.Delete(t.Context(), "resp_1"); err != nil {
		t.Fatal(err)
	}
	if f.owns("resp_1", Response, user) {
		t.Error("a deleted response can be named")
	}
	f.PollNow(t.Context(), "resp_1", ended)
	if got := f.wallet(); got != 100-price {
		t.Errorf("the balance is %v", got)
	}
}

func TestAnObjectHasOneOwnerUntilItsTimeIsOver(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	record := func(who string) {
		t.Helper()
		if _, err := f.Record(t.Context(), Object{User: who}, time.Hour, []Found{{"conv_1", Conversation}}); err != nil {
			t.Fatal(err)
		}
	}
	record(user)
	record("usr_2")
	if !f.owns("conv_1", Conversation, user) || f.owns("conv_1", Conversation, "usr_2") || f.owns("conv_1", Response, user) {
		t.Error("the first owner does not own the conversation alone")
	}
	f.clock.Advance(time.Hour)
	if f.owns("conv_1", Conversation, user) {
		t.Error("the object is owned after its time")
	}
	record("usr_2")
	if f.owns("conv_1", Conversation, user) || !f.owns("conv_1", Conversation, "usr_2") {
		t.Error("the object has no new owner")
	}
	var problems int
	if err := f.store.View(t.Context(), func(r storage.Reader) error {
		return Verify(r, func(string, ...any) { problems++ })
	}); err != nil || problems != 0 {
		t.Errorf("%d problems, %v", problems, err)
	}
}
