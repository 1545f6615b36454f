package identity

import (
	"encoding/base64"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestAKeyOfAnotherUserIsNotFound(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	f.userWithPassword(t, "bob")
	ann, bob := f.login(t, "ann").Account, f.login(t, "bob").Account
	anns, secret, err := f.CreateOwnKey(ctx, ann, KeySpec{Name: "laptop"})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := f.Authenticate(secret.Reveal()); !ok || p.UserID != ann.UserID {
		t.Fatalf("%+v, %v", p, ok)
	}
	name := "mine now"
	for what, op := range map[string]func(id string) error{
		"see":             func(id string) error { return second(f.OwnKey(ctx, bob, id)) },
		"change":          func(id string) error { return second(f.ChangeOwnKey(ctx, bob, id, KeyChange{Name: &name})) },
		"rotate":          func(id string) error { return third(f.RotateOwnKey(ctx, bob, id, 0)) },
		"revoke":          func(id string) error { return second(f.RevokeOwnKey(ctx, bob, id)) },
		"callback secret": func(id string) error { return third(f.RenewCallbackSecret(ctx, bob, id)) },
	} {
		unknown := "key_0000000000000000"
		bobs, none := op(anns.ID), op(unknown)
		refusedAs(t, what, bobs, fault.NotFound)
		if a, b := strings.ReplaceAll(fmt.Sprintf("%+v", bobs), anns.ID, "ID"), strings.ReplaceAll(fmt.Sprintf("%+v", none), unknown, "ID"); a != b {
			t.Errorf("%s: the key of another user %s, an unknown key %s", what, a, b)
		}
	}
	if list := must(f.OwnKeys(ctx, bob))(t); len(list) != 0 {
		t.Errorf("the user sees %+v", list)
	}
	if key := must(f.OwnKey(ctx, ann, anns.ID))(t); key.Name != "laptop" || key.Hint != anns.Hint || key.Revoked != 0 || key.CallbackSecretCreated != 0 {
		t.Errorf("the key was changed: %+v", key)
	}
	f.checkKey(t, "the key", secret.Reveal(), true)
}

func TestAnOwnerChangesRotatesAndRevokesAKey(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	expires := f.clock.Now().Add(time.Hour).Unix()
	key, secret, err := f.CreateOwnKey(ctx, a, KeySpec{
		Name: "one", Models: []string{"a-*", "b"}, IPRanges: []string{"10.0.0.0/8", "192.0.2.1"}, Expires: expires,
		Limits: Limits{RequestsPerSecond: 5, Budget: money.Unit}, CallbackURL: "https://example.com/done?x=1",
	})
	if err != nil {
		t.Fatal(err)
	}
	name := "two"
	changed := must(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name}))(t)
	want := key
	want.Name = "two"
	if !reflect.DeepEqual(changed, want) {
		t.Errorf("%+v, want %+v", changed, want)
	}
	if p, ok := f.Authenticate(secret.Reveal()); !ok || p.KeyName != "two" || !p.MayUse("a-1") || p.MayUse("c") {
		t.Errorf("%+v, %v", p, ok)
	}
	none, never, rps, budget, noURL := []string{}, int64(0), int64(7), money.Amount(0), ""
	changed = must(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{
		Models: &none, IPRanges: &none, Expires: &never, CallbackURL: &noURL,
		Limits: &LimitsChange{RequestsPerSecond: &rps, Budget: &budget},
	}))(t)
	if len(changed.Models) != 0 || len(changed.Ranges) != 0 || changed.Expires != 0 || changed.CallbackURL != "" ||
		changed.Limits != (Limits{RequestsPerSecond: 7}) || changed.Name != "two" {
		t.Errorf("%+v", changed)
	}
	if p, _ := f.Authenticate(secret.Reveal()); !p.MayUse("c") {
		t.Error("the principal has the old models")
	}
	past, bad := int64(1), []string{"**"}
	for what, c := range map[string]KeyChange{"expires": {Expires: &past}, "models": {Models: &bad}, "callback_url": {CallbackURL: &name}} {
		if _, err := f.ChangeOwnKey(ctx, a, key.ID, c); codeOf(err) != fault.InvalidParameter || paramOf(err) != what {
			t.Errorf("%s: %v", what, err)
		}
	}

	_, next, err := f.RotateOwnKey(ctx, a, key.ID, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f.checkKey(t, "the old secret in its grace", secret.Reveal(), true)
	f.checkKey(t, "the new secret", next.Reveal(), true)
	must(f.RevokeOwnKey(ctx, a, key.ID))(t)
	f.checkKey(t, "the old secret of a revoked key", secret.Reveal(), false)
	f.checkKey(t, "the new secret of a revoked key", next.Reveal(), false)
	_, err = f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name})
	refusedAs(t, "a change of a revoked key", err, fault.Conflict)
	if list := must(f.OwnKeys(ctx, a))(t); len(list) != 1 || list[0].Revoked == 0 {
		t.Errorf("%+v", list)
	}

	if err := f.Logout(ctx, a); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a key":             third(f.CreateOwnKey(ctx, a, KeySpec{})),
		"a change":          second(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name})),
		"a rotation":        third(f.RotateOwnKey(ctx, a, key.ID, 0)),
		"a callback secret": third(f.RenewCallbackSecret(ctx, a, key.ID)),
		"a display name":    second(f.ChangeProfile(ctx, a, Profile{DisplayName: &name})),
	} {
		refusedAs(t, what+" by a session that has ended", err, fault.NotLoggedIn)
	}
}

func TestKeysInForceAreLimited(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	user := f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	err := f.store.Update(ctx, func(txn storage.Txn) error {
		for i := range MaxKeys {
			key := keyRecord{Key: Key{ID: fmt.Sprintf("key_%d", i), UserID: user.ID, Created: 1}}
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
	_, _, err = f.CreateOwnKey(ctx, a, KeySpec{})
	refusedAs(t, "one more", err, fault.Conflict)
	must(f.RevokeOwnKey(ctx, a, "key_7"))(t)
	if _, _, err = f.CreateOwnKey(ctx, a, KeySpec{}); err != nil {
		t.Errorf("after a revocation: %v", err)
	}
}

func TestCheckCallbackURL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url string
		ok  bool
	}{
		{"", true}, {"https://example.com", true}, {"http://example.com:8080/a?b=c", true}, {"https://[2001:db8::1]/x", true},
		{"https://xn--bcher-kva.example/", true}, {"HTTPS://example.com/", true},
		{"https://example.com/" + strings.Repeat("x", 2048-20), true}, {"https://example.com/" + strings.Repeat("x", 2048-19), false},
		{"example.com", false}, {"/done", false}, {"//example.com/done", false}, {"ftp://example.com", false}, {"file:///etc/passwd", false},
		{"https:example.com", false}, {"https://", false}, {"https:///x", false}, {"https://user@example.com/", false},
		{"https://user:pass@example.com/", false}, {"https://example.com/#x", false}, {"https://example.com/a b", false},
		{"https://example.com/\n", false}, {" https://example.com/", false}, {"https://bücher.example/", false}, {"javascript:alert(1)", false},
		{"https://:80/", false},
	} {
		if refusal := checkCallbackURL(c.url); (refusal == nil) != c.ok || refusal != nil && refusal.Param != "callback_url" {
			t.Errorf("%.60q: %v", c.url, refusal)
		}
	}
}

// TestOnlyNewCallbackAddressesAreChecked changes another field of a key after the configuration no
// longer allows its address.
func TestOnlyNewCallbackAddressesAreChecked(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	inside, outside, name, noURL := "http://10.0.0.1/", "https://example.com/", "n", ""
	before, _, err := f.CreateOwnKey(ctx, a, KeySpec{CallbackURL: inside})
	if err != nil {
		t.Fatal(err)
	}
	f.SetCallbackCheck(func(url string) error {
		if url == inside {
			return errors.New("must be public")
		}
		return nil
	})
	_, _, created := f.CreateOwnKey(ctx, a, KeySpec{CallbackURL: inside})
	_, _, byOperator := f.CreateKey(ctx, "operator", a.UserID, KeySpec{CallbackURL: inside})
	_, changed := f.ChangeOwnKey(ctx, a, before.ID, KeyChange{CallbackURL: &inside})
	for what, err := range map[string]error{"created": created, "created by an operator": byOperator, "changed": changed} {
		if codeOf(err) != fault.InvalidParameter || paramOf(err) != "callback_url" || !strings.Contains(err.Error(), "a callback address must be public") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if key := must(f.ChangeOwnKey(ctx, a, before.ID, KeyChange{Name: &name}))(t); key.CallbackURL != inside || key.Name != name {
		t.Errorf("%+v", key)
	}
	for _, url := range []string{outside, noURL} {
		if key := must(f.ChangeOwnKey(ctx, a, before.ID, KeyChange{CallbackURL: &url}))(t); key.CallbackURL != url {
			t.Errorf("%+v", key)
		}
	}
}

// callbackSecrets returns the secrets that sign the callbacks of a key, as users see them.
func (f fixture) callbackSecrets(t testing.TB, keyID string) (secrets []Secret, err error) {
	t.Helper()
	err = f.store.View(t.Context(), func(r storage.Reader) error {
		keys, err := f.CallbackKeys(r, keyID)
		for _, key := range keys {
			secrets = append(secrets, Secret("whsec_"+base64.StdEncoding.EncodeToString(key)))
		}
		return err
	})
	return secrets, err
}

func TestACallbackSecretIsSealedRotatedAndShownOnce(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := t.Context()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	key, _, err := f.CreateOwnKey(ctx, a, KeySpec{CallbackURL: "https://example.com/"})
	if err != nil {
		t.Fatal(err)
	}
	signing := func() []Secret { return must(f.callbackSecrets(t, key.ID))(t) }
	if got := signing(); len(got) != 0 {
		t.Errorf("%d secrets before there is one", len(got))
	}
	renew := func() (Key, Secret) {
		a = f.login(t, "ann").Account // the last session has expired
		key, secret, err := f.RenewCallbackSecret(ctx, a, key.ID)
		if err != nil {
			t.Fatal(err)
		}
		return key, secret
	}
	shown, first := renew()
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(first.Reveal(), "whsec_"))
	if err != nil || len(raw) < 24 || len(raw) > 64 || shown.CallbackSecretCreated != f.clock.Now().Unix() || shown.CallbackPreviousUntil != 0 {
		t.Errorf("%d bytes, %v, %+v", len(raw), err, shown)
	}
	if got := signing(); !reflect.DeepEqual(got, []Secret{first}) {
		t.Error("the first secret does not sign")
	}
	f.clock.Advance(time.Hour)
	shown, next := renew()
	if shown.CallbackPreviousUntil != f.clock.Now().Add(24*time.Hour).Unix() {
		t.Errorf("%+v", shown)
	}
	if got := signing(); !reflect.DeepEqual(got, []Secret{next, first}) {
		t.Error("during the grace the signing secrets are not the new and the old one")
	}
	f.clock.Advance(24*time.Hour - time.Second)
	if got := signing(); len(got) != 2 {
		t.Error("the old secret ended a second early")
	}
	f.clock.Advance(time.Second)
	if got := signing(); !reflect.DeepEqual(got, []Secret{next}) {
		t.Error("the old secret signs after 24 hours")
	}

	// The secrets are sealed for this key, so another key cannot open them.
	a = f.login(t, "ann").Account
	other, _, err := f.CreateOwnKey(ctx, a, KeySpec{})
	if err != nil {
		t.Fatal(err)
	}
	err = f.store.Update(ctx, func(txn storage.Txn) error {
		from, err := findKey(txn, key.ID)
		if err != nil {
			return err
		}
		to, err := findKey(txn, other.ID)
		if err != nil {
			return err
		}
		after := *to
		after.CallbackSecret = from.CallbackSecret
		return keyTable.Put(txn, to, &after)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.callbackSecrets(t, other.ID); err == nil {
		t.Errorf("another key's secret was opened: %d", len(got))
	}
	a = f.login(t, "ann").Account
	must(f.RevokeOwnKey(ctx, a, key.ID))(t)
	_, _, err = f.RenewCallbackSecret(ctx, a, key.ID)
	refusedAs(t, "a secret for a revoked key", err, fault.Conflict)
}
