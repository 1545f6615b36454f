package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestActivityIsTheUsersOwnNewestFirst(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	ann, bob := f.user(t, "ann"), f.user(t, "bob")
	for i := range 5 {
		f.clock.pass(time.Second)
		for _, user := range []User{ann, bob} {
			err := f.store.Update(ctx, func(txn storage.Txn) error {
				actor := []string{user.ID, "operator", "stripe"}[i%3]
				return Record(txn, f.clock.Now(), Event{Actor: actor, Action: fmt.Sprint("wallet.", i), User: user.ID, Detail: user.Name})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	var got []string
	for skip := int64(0); ; skip += 2 {
		events, total, err := f.Activity(ctx, ann.ID, skip, 2)
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
	if events, total, err := f.Activity(ctx, "usr_", 0, 10); err != nil || total != 0 || len(events) != 0 {
		t.Errorf("a part of an id has activity: %+v", events)
	}
}

func TestAUserSaysHowHeWantsToBeCalled(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.person(t, "ann")
	a := f.login(t, "ann").Account
	change := func(name string) (User, error) { return f.ChangeProfile(ctx, a, Profile{DisplayName: &name}) }
	if user := must(change("  Ann of Green Gables 🍀 "))(t); user.DisplayName != "Ann of Green Gables 🍀" {
		t.Errorf("%q", user.DisplayName)
	}
	for _, bad := range []string{strings.Repeat("x", 65), "two\nlines", "a\u202eb", "a\x00b", "\xff"} {
		_, err := change(bad)
		refusedAs(t, fmt.Sprintf("%q", bad), err, fault.InvalidParameter)
	}
	if user := must(f.ChangeProfile(ctx, a, Profile{}))(t); user.DisplayName == "" {
		t.Error("what was not given was taken away")
	}
	if user := must(change(""))(t); user.DisplayName != "" || user.Name != "ann" {
		t.Errorf("%+v", user)
	}
}
