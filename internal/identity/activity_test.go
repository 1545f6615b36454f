package identity

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestActivityHasTheUsersEventsNewestFirst(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	ann, bob := f.user(t, "ann"), f.user(t, "bob")
	for i := range 5 {
		f.clock.Advance(time.Second)
		for _, user := range []User{ann, bob} {
			err := f.store.Update(ctx, func(txn storage.Txn) error {
				actor := []string{user.ID, "operator", "stripe"}[i%3]
				return audit.Record(t.Context(), txn, f.clock.Now(), &audit.Event{Actor: actor, Action: fmt.Sprint("wallet.", i), User: user.ID, Detail: user.Name})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for skip := int64(0); ; skip += 2 {
		events, total, err := f.Audit.Activity(ctx, ann.ID, skip, 2)
		if err != nil || total != 6 {
			t.Fatalf("%d, %v", total, err)
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			if e.User != "" || e.Detail != "ann" {
				t.Errorf("%+v", e)
			}
			got = append(got, e.Action+" by "+e.Actor)
		}
	}
	want := "wallet.4 by operator, wallet.3 by you, wallet.2 by stripe, wallet.1 by operator, wallet.0 by you, user.create by operator"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s", strings.Join(got, ", "))
	}
	if events, total, err := f.Audit.Activity(ctx, "usr_", 0, 10); err != nil || total != 0 || len(events) != 0 {
		t.Errorf("a part of an id has activity: %+v", events)
	}
}

func TestDisplayNames(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	set := func(p Profile) (User, error) {
		if _, err := f.ChangeProfile(ctx, a, p); err != nil {
			return User{}, err
		}
		return f.User(ctx, "ann")
	}
	change := func(name string) (User, error) { return set(Profile{DisplayName: &name}) }
	if user := must(change("  Ann of Green Gables 🍀 "))(t); user.DisplayName != "Ann of Green Gables 🍀" {
		t.Errorf("%q", user.DisplayName)
	}
	for _, bad := range []string{strings.Repeat("x", 65), "two\nlines", "a\u202eb", "a\x00b", "\xff"} {
		_, err := change(bad)
		refusedAs(t, fmt.Sprintf("%q", bad), err, fault.InvalidParameter)
	}
	if user := must(set(Profile{}))(t); user.DisplayName == "" {
		t.Error("a field that was not given was removed")
	}
	if user := must(change(""))(t); user.DisplayName != "" || user.Name != "ann" {
		t.Errorf("%+v", user)
	}
}

// TestChangesPerDayAreLimited ensures that changes that cost nothing cannot fill the store.
func TestChangesPerDayAreLimited(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.clock.Advance(-time.Hour) // 11:00
	user := f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	a := f.login(t, "ann").Account
	key, _ := f.key(t, "ann", KeySpec{Name: "0"})
	events := func() int64 {
		t.Helper()
		_, total, err := f.Audit.Activity(ctx, user.ID, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	n := 0
	profile := func() error {
		n++
		name := fmt.Sprint("Ann ", n)
		return second(f.ChangeProfile(ctx, a, Profile{DisplayName: &name}))
	}
	rename := func() error {
		n++
		name := fmt.Sprint(n)
		return second(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name}))
	}
	before := events()
	name, none := "0", []string{}
	for range 3 {
		expect(t, "no change", second(f.ChangeProfile(ctx, a, Profile{DisplayName: new(string)})), "")
		expect(t, "no change", second(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name, Models: &none})), "")
	}
	if got := events(); got != before {
		t.Errorf("%d events of changes without effect", got-before)
	}
	for i := range audit.MaxOwnChanges {
		if err := []func() error{profile, rename}[i%2](); err != nil {
			t.Fatalf("the %dth change: %v", i, err)
		}
		if i%100 == 0 {
			a = f.login(t, "ann").Account
		}
	}
	full := events()
	for what, do := range map[string]func() error{
		"a display name":  profile,
		"a key's name":    rename,
		"a key":           func() error { return third(f.CreateOwnKey(ctx, a, KeySpec{})) },
		"a rotation":      func() error { return third(f.RotateOwnKey(ctx, a, key.ID, 0)) },
		"an access token": func() error { return second(f.MintOwnToken(ctx, a)) },
	} {
		err := do()
		expect(t, what+" too many", err, fault.RateLimited)
		var refusal *fault.Fault
		if errors.As(err, &refusal) && (refusal.RetryAfter < 13*time.Hour || refusal.RetryAfter > 13*time.Hour+time.Second) {
			t.Errorf("%s: RetryAfter is %v at 11:00", what, refusal.RetryAfter)
		}
	}
	if got := events(); got != full {
		t.Errorf("%d events of refused changes", got-full)
	}
	if user := must(f.User(ctx, "ann"))(t); user.DisplayName != fmt.Sprint("Ann ", audit.MaxOwnChanges-1) || user.Token != nil {
		t.Errorf("%+v: it was changed without its event", user)
	}

	// Other users and changes that end an access are not limited.
	f.key(t, "ann", KeySpec{})
	bob := "Bob"
	expect(t, "another user", second(f.ChangeProfile(ctx, f.login(t, "bob").Account, Profile{DisplayName: &bob})), "")
	expect(t, "a revocation", second(f.RevokeOwnKey(ctx, a, key.ID)), "")
	a.setSecret(must(f.EndSessions(ctx, a, false))(t))

	if err := f.Unblock(ctx, "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	for range audit.MaxOwnChanges {
		if err := profile(); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, "one too many again", profile(), fault.RateLimited)
	f.clock.Advance(13*time.Hour - time.Nanosecond)
	a = f.login(t, "ann").Account
	expect(t, "before midnight", profile(), fault.RateLimited)
	f.clock.Advance(time.Nanosecond)
	expect(t, "on the next day", profile(), "")
}

// TestARefusedProofIsRecordedWithItsAddress checks the address, which helps a user to identify an
// intruder.
func TestARefusedProofIsRecordedWithItsAddress(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	ann := f.login(t, "ann").Account
	seed, _ := f.withTOTP(t, ann)
	ann.Address = "198.51.100.4"
	f.clock.Advance(time.Second)
	expect(t, "a wrong code", f.verify(t, ann, f.wrongCode(t, seed)), fault.VerificationFailed)
	f.clock.Advance(time.Second)
	expect(t, "a wrong password", f.ProvePassword(t.Context(), ann, otherPassword), fault.VerificationFailed)
	if err := f.store.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, _, err := f.Audit.Activity(t.Context(), user.ID, 0, 2)
	if err != nil || len(events) != 2 || events[0].Action != "password.refuse" || events[1].Action != "code.refuse" {
		t.Fatalf("%+v, %v", events, err)
	}
	for _, e := range events {
		if e.Address != ann.Address {
			t.Errorf("%+v", e)
		}
	}
}

func TestActivityIsLimitedToTheNewestEvents(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.user(t, "ann")
	for range 11 {
		err := f.store.Update(t.Context(), func(txn storage.Txn) error {
			for range audit.MaxActivity / 10 {
				f.clock.Advance(time.Millisecond)
				if err := audit.Record(t.Context(), txn, f.clock.Now(), &audit.Event{Actor: user.ID, Action: "x", User: user.ID}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		skip, limit int64
		want        int
	}{{0, 20, 20}, {audit.MaxActivity - 5, 20, 5}, {audit.MaxActivity, 20, 0}, {audit.MaxActivity + 500, 20, 0}} {
		events, total, err := f.Audit.Activity(t.Context(), user.ID, c.skip, c.limit)
		if err != nil || total != audit.MaxActivity || len(events) != c.want {
			t.Errorf("after %d: %d of %d, %v", c.skip, len(events), total, err)
		}
	}
}
