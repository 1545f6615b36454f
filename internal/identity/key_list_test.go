package identity

import (
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
)

// withKeys writes n keys of a user into the store, in one transaction. ends returns when the
// i-th key ends.
func (f fixture) withKeys(t testing.TB, user User, from, n int, ends func(i int) int64) {
	t.Helper()
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		for i := from; i < from+n; i++ {
			key := keyRecord{Key: Key{ID: fmt.Sprintf("key_%05d", i), UserID: user.ID, Created: 1, Scope: Scope{Expires: ends(i)}}}
			key.setSecret(credential.APIKey.Draw())
			if err := keyTable.Put(txn, nil, &key); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (f fixture) keyIDs(t testing.TB, user User) (ids map[string]bool) {
	t.Helper()
	ids = make(map[string]bool)
	for _, key := range must(f.Keys(t.Context(), user.ID))(t) {
		ids[key.ID] = true
	}
	return ids
}

// TestTheOldestEndedKeysAreDropped ensures that the cost of a new key does not grow with the number
// of revoked keys.
func TestTheOldestEndedKeysAreDropped(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user, other := f.userWithPassword(t, "ann"), f.user(t, "bob")
	a := f.login(t, "ann").Account
	now := f.clock.Now().Unix()
	f.withKeys(t, user, 0, maxEndedKeys, func(i int) int64 { return now - int64(i) }) // the last one ended first
	f.withKeys(t, user, 50_000, 7, func(int) int64 { return 0 })
	kept, _ := f.key(t, "bob", KeySpec{})
	create := func() Key {
		t.Helper()
		key, _, err := f.CreateOwnKey(ctx, a, KeySpec{})
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	create()
	if ids := f.keyIDs(t, user); len(ids) != maxEndedKeys+8 {
		t.Errorf("%d keys: a key was dropped before the limit", len(ids))
	}
	last := create()
	must(f.RevokeOwnKey(ctx, a, last.ID))(t)
	create()
	ids := f.keyIDs(t, user)
	if len(ids) != maxEndedKeys+9 || ids["key_00999"] || !ids["key_00998"] || !ids[last.ID] || !ids["key_50000"] {
		t.Errorf("%d keys; listed: the first to end %v, the second %v, the last %v", len(ids), ids["key_00999"], ids["key_00998"], ids[last.ID])
	}
	refusedAs(t, "a dropped key", second(f.OwnKey(ctx, a, "key_00999")), fault.NotFound)
	if _, err := f.Keys(ctx, ""); err != nil {
		t.Errorf("the list of all: %v", err)
	}

	// Many keys are dropped in small steps, and no key in force is dropped.
	f.withKeys(t, user, 10_000, 500, func(int) int64 { return 1 })
	before := len(f.keyIDs(t, user))
	create()
	if got := len(f.keyIDs(t, user)); got != before+1-dropAtOnce {
		t.Errorf("%d keys, before the new one %d", got, before)
	}
	for range 5 {
		create()
	}
	ids = f.keyIDs(t, user)
	if want := maxEndedKeys + 7 + 8; len(ids) != want || !ids["key_50006"] {
		t.Errorf("%d keys, want %d", len(ids), want)
	}
	if ids := f.keyIDs(t, other); !ids[kept.ID] {
		t.Error("a key of another user was dropped")
	}
	// The audit has the dropped keys.
	events, _, err := f.Audit.Activity(ctx, user.ID, 0, 100)
	if err != nil || len(events) < 10 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// TestTheKeyIndexFollowsEachChange checks the index by the end of keys, on which the limit of keys
// in force depends.
func TestTheKeyIndexFollowsEachChange(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user := f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	f.withKeys(t, user, 0, MaxKeys-1, func(int) int64 { return 0 })
	create := func(spec KeySpec) (Key, error) {
		key, _, err := f.CreateOwnKey(ctx, a, spec)
		return key, err
	}
	soon := f.clock.Now().Unix() + 60
	key := must(create(KeySpec{Expires: soon}))(t)
	refusedAs(t, "one too many", second(create(KeySpec{})), fault.Conflict)
	f.clock.Advance(time.Minute)
	again := must(create(KeySpec{}))(t)
	if key.ID == again.ID {
		t.Fatal("the second key has the id of the first")
	}
	_, err := create(KeySpec{})
	refusedAs(t, "one too many again", err, fault.Conflict)
	later := f.clock.Now().Unix() + 60
	must(f.ChangeOwnKey(ctx, a, again.ID, KeyChange{Expires: &later}))(t)
	f.clock.Advance(time.Minute)
	then := must(create(KeySpec{}))(t)
	must(f.RevokeOwnKey(ctx, a, then.ID))(t)
	must(create(KeySpec{}))(t)
	_, err = create(KeySpec{})
	refusedAs(t, "a third time one too many", err, fault.Conflict)
}

func TestNamesOfKeysAndPasskeysAreVisible(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	user := f.userWithPassword(t, "ann")
	a := f.newAccount(t, user, false)
	key, _ := f.key(t, "ann", KeySpec{Name: "a b, ü 日本 🍀"})
	for _, bad := range []string{"a\x1b[2Jb", "two\nlines", "a\tb", "a\u202eb", "a\u2066b", "a\u200bb", "a\u0085b", "a\u2028b", "\xff"} {
		_, _, err := f.CreateKey(t.Context(), "operator", "ann", KeySpec{Name: bad})
		refusedAs(t, fmt.Sprintf("a key %q", bad), err, fault.InvalidParameter)
		refusedAs(t, fmt.Sprintf("a change to %q", bad), second(f.ChangeOwnKey(t.Context(), a, key.ID, KeyChange{Name: &bad})), fault.InvalidParameter)
		_, err = f.BeginPasskey(t.Context(), here, a, goodPassword, bad)
		refusedAs(t, fmt.Sprintf("a passkey %q", bad), err, fault.InvalidParameter)
	}
	if _, err := f.BeginPasskey(t.Context(), here, a, goodPassword, "Ann's ü 日本 🍀"); err != nil {
		t.Error(err)
	}
}
