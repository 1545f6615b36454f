package identity

import (
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestAUserHasOneConsoleKey(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	ann, bob := f.login(t, "ann").Account, f.login(t, "bob").Account

	var wg sync.WaitGroup
	ids := make([]string, 8) // concurrent first calls
	for i := range ids {
		wg.Go(func() {
			p, err := f.ConsolePrincipal(ctx, ann)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = p.KeyID
		})
	}
	wg.Wait()
	first := must(f.ConsolePrincipal(ctx, ann))(t)
	for _, id := range ids {
		if id != first.KeyID {
			t.Errorf("there are two hidden keys: %s and %s", id, first.KeyID)
		}
	}
	if first.UserID != ann.UserID || first.UserName != "ann" || !strings.HasPrefix(first.KeyID, "key_") || first.OwnerLimits != (Limits{}) || first.OperatorLimits != (Limits{}) || !first.MayUse("whatever") {
		t.Errorf("%+v", first)
	}
	if bobs := must(f.ConsolePrincipal(ctx, bob))(t); bobs.KeyID == first.KeyID || bobs.UserID != bob.UserID {
		t.Errorf("two users have one hidden key: %+v", bobs)
	}
	if again := must(f.reopened(t).ConsolePrincipal(ctx, ann))(t); again.KeyID != first.KeyID {
		t.Errorf("after a restart the key is %s", again.KeyID)
	}

	// No user can list, use or change it.
	if list := must(f.OwnKeys(ctx, ann))(t); len(list) != 0 {
		t.Errorf("the key is listed: %+v", list)
	}
	if all := must(f.Keys(ctx, ""))(t); len(all) != 0 {
		t.Errorf("the key is listed for operators: %+v", all)
	}
	before := f.Count()
	for what, err := range map[string]error{
		"see": second(f.OwnKey(ctx, ann, first.KeyID)), "rotate": third(f.RotateOwnKey(ctx, ann, first.KeyID, 0)),
		"revoke": second(f.RevokeOwnKey(ctx, ann, first.KeyID)), "rotate as operator": third(f.RotateKey(ctx, "operator", first.KeyID, 0)),
	} {
		refusedAs(t, what, err, fault.NotFound)
	}
	if f.Count() != before || before != 0 {
		t.Errorf("%d credentials are in force, before there were %d", f.Count(), before)
	}

	// The current limits of the user apply.
	limits := Limits{Budget: 5 * money.Unit, Reset: calendar.Day}
	if _, err := f.ChangeUserLimits(ctx, "operator", "ann", limits.Change()); err != nil {
		t.Fatal(err)
	}
	if p := must(f.ConsolePrincipal(ctx, ann))(t); p.UserLimits != limits {
		t.Errorf("%+v", p)
	}
	recorded := 0
	events, _, err := f.Audit.Activity(ctx, ann.UserID, 0, 100)
	for _, e := range events {
		if e.Action == "key.console" && e.Key == first.KeyID && e.Actor == audit.You && e.Address == ann.Address {
			recorded++
		}
	}
	if err != nil || recorded != 1 {
		t.Errorf("the activity has %d events of it: %+v, %v", recorded, events, err)
	}
}

func TestOnlyASessionInForceHasAConsoleKey(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	out, disabled, half := f.login(t, "ann").Account, f.login(t, "ann").Account, *f.login(t, "ann").Account
	half.HalfOpen = true
	refusedAs(t, "half-open", second(f.ConsolePrincipal(ctx, &half)), fault.SecondFactorRequired)
	if err := f.Logout(ctx, out); err != nil {
		t.Fatal(err)
	}
	refusedAs(t, "logged out", second(f.ConsolePrincipal(ctx, out)), fault.NotLoggedIn)
	must(f.SetUserDisabled(ctx, "operator", "ann", true))(t)
	refusedAs(t, "disabled", second(f.ConsolePrincipal(ctx, disabled)), fault.NotLoggedIn)
	if err := f.store.View(ctx, func(r storage.Reader) error {
		if key, err := consoleKeyTable.Get(r, out.UserID); err != nil || key != nil {
			t.Errorf("a key was created: %+v, %v", key, err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestTheConsoleKeyStaysAfterAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	f.userWithPassword(t, "ann")
	ann := f.login(t, "ann").Account
	f.engine.Plan(storagetest.UnknownCommitted)
	p, err := f.ConsolePrincipal(t.Context(), ann)
	if err != nil {
		refusedAs(t, "an unknown outcome", err, fault.StoreUnavailable)
	}
	again := must(f.ConsolePrincipal(t.Context(), ann))(t)
	if p != nil && p.KeyID != again.KeyID {
		t.Errorf("%s, then %s", p.KeyID, again.KeyID)
	}
	if third := must(f.ConsolePrincipal(t.Context(), ann))(t); third.KeyID != again.KeyID {
		t.Errorf("%s, then %s", again.KeyID, third.KeyID)
	}
}
