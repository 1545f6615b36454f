package ledger

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
)

// tolerant is a payer with a tolerance of 1%.
var tolerant = Payer{User: "ann", Tolerance: MaxTolerance / 100}

// fullContext is the same payer for a call that reserves the price of the whole context.
var fullContext = Payer{User: "ann", Tolerance: MaxTolerance / 100, FullContext: true}

// cent is more than the amount that is always tolerated.
const cent = 2 * alwaysTolerated

// called makes a call with a reserved amount and a cost.
func (f *fixture) called(id string, payer Payer, reserved, cost money.Amount) {
	f.t.Helper()
	f.reserve(payer, reserved).Settle(aCall(f, id, "ann"), cost, true)
	f.settled()
}

func TestCallsOfAUserWhoLeftTooMuchUncollectedAreRestricted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100_000*cent)
	f.called("a", tolerant, 1000*cent, 1000*cent)
	f.called("b", tolerant, 10*cent, 20*cent) // 10 of 1010 are lost, which is tolerated
	first, second := f.reserve(tolerant, 5*cent), f.reserve(tolerant, 5*cent)
	second.Release()
	first.Settle(aCall(f, "c", "ann"), 6*cent, true) // 11 of 1015 are lost, which is not tolerated
	f.settled()
	if _, err := f.Reserve(t.Context(), tolerant, 5*cent); !errors.Is(err, ErrFullContext) {
		t.Fatalf("a call that does not reserve the whole context: %v", err)
	}
	f.restricted(f.Ledger, "ann")
	running := f.reserve(fullContext, 50*cent)
	if _, err := f.Reserve(t.Context(), fullContext, 50*cent); !errors.Is(err, ErrOneAtATime) {
		t.Fatalf("a second call at once: %v", err)
	}
	running.Settle(aCall(f, "d", "ann"), 10*cent, false)
	if _, err := f.Reserve(t.Context(), fullContext, 50*cent); !errors.Is(err, ErrOneAtATime) {
		t.Fatalf("a second call after an intermediate settlement of the first: %v", err)
	}
	running.Settle(aCall(f, "d", "ann"), 40*cent, true)
	f.reserve(fullContext, 50*cent).Release() // the first call has ended, but is not durable
	f.reserve(Payer{User: "ann"}, 5).Release()
	f.credit("bob", 10)
	f.reserve(Payer{User: "bob", Tolerance: 1}, 5).Release()

	f.called("e", fullContext, 2000*cent, 2000*cent) // now less than 1% is lost
	f.reserve(tolerant, 5*cent).Release()
	f.restricted(f.Ledger, "")
	f.checkNothingLeft()
}

// restricted checks the ids of the restricted users, separated by spaces.
func (f *fixture) restricted(l *Ledger, want string) {
	f.t.Helper()
	if users, err := l.Restricted(f.t.Context(), tolerant.Tolerance); err != nil || strings.Join(users, " ") != want {
		f.t.Errorf("the restricted users are %q, want %q (%v)", users, want, err)
	}
}

func TestASmallLossRestrictsNoUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", money.Unit)
	f.called("a", tolerant, 10, 10+alwaysTolerated)
	f.reserve(tolerant, 5).Release()
	f.restricted(f.Ledger, "")
	f.called("b", tolerant, 1, 2)
	f.restricted(f.Ledger, "ann")
}

func TestARestrictionReportsItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100*cent)
	f.called("a", tolerant, 10*cent, 20*cent)
	f.clock.Advance(6 * time.Hour)
	f.called("b", fullContext, cent, cent)
	r, err := f.Restriction(t.Context(), "ann", tolerant.Tolerance)
	if err != nil || r.Uncollected != 10*cent || r.Charged != 11*cent {
		t.Fatalf("the restriction is %+v (%v)", r, err)
	}
	f.clock.Advance(r.Until.Sub(f.store.Now()) - time.Minute)
	f.restricted(f.Ledger, "ann")
	f.clock.Advance(time.Minute)
	f.restricted(f.Ledger, "")
	if r, err := f.Restriction(t.Context(), "ann", tolerant.Tolerance); err != nil || r != (Restriction{}) {
		t.Errorf("after its end, the restriction is %+v (%v)", r, err)
	}
}

func TestALossExpiresAfterADay(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100*cent)
	f.called("a", tolerant, 10*cent, 20*cent)
	f.clock.Advance(23 * time.Hour)
	if _, err := f.Reserve(t.Context(), tolerant, 5*cent); !errors.Is(err, ErrFullContext) {
		t.Fatalf("after 23 hours: %v", err)
	}
	f.restricted(f.Ledger, "ann")
	f.clock.Advance(time.Hour + lossStep)
	f.restricted(f.Ledger, "")
	f.reserve(tolerant, 5*cent).Release()
}

func TestALossIsReadAgainAfterACallerDisconnects(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100*cent)
	f.called("a", tolerant, 10*cent, 20*cent)
	f.clock.Advance(idle + time.Minute)
	f.Sweep()
	disconnected, disconnect := context.WithCancel(t.Context())
	disconnect()
	if _, err := f.Reserve(disconnected, tolerant, 5*cent); !errors.Is(err, context.Canceled) {
		t.Fatalf("a call with a disconnected caller: %v", err)
	}
	if _, err := f.Reserve(t.Context(), tolerant, 5*cent); !errors.Is(err, ErrFullContext) {
		t.Errorf("the next call: %v", err)
	}
}

func TestALossIsReadAfterARestartAndASweep(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	f.credit("ann", 100_000*cent)
	f.called("old", tolerant, 1000*cent, 1000*cent)
	f.clock.Advance(20 * time.Hour)
	f.called("a", tolerant, 10*cent, 21*cent)
	restricted := func(name string, l *Ledger) {
		t.Helper()
		if _, err := l.Reserve(t.Context(), tolerant, 5*cent); !errors.Is(err, ErrFullContext) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.clock.Advance(idle + time.Minute)
	f.Sweep()
	if n := f.Stats().CachedUsers; n != 0 {
		t.Fatalf("the balances of %d users are kept", n)
	}
	restricted("with new balances", f.Ledger)

	again, err := Open(t.Context(), f.store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close(t.Context())
	f.restricted(again, "ann")
	restricted("with a new ledger", again)
	r, err := again.Reserve(t.Context(), fullContext, 1000*cent)
	if err != nil {
		t.Fatal(err)
	}
	r.Settle(aCall(f, "b", "ann"), 1000*cent, true)
	r, err = again.Reserve(t.Context(), tolerant, 5*cent) // 11 of 2010
	if err != nil {
		t.Fatalf("the charges before and after the restart do not add up: %v", err)
	}
	r.Release()
}
