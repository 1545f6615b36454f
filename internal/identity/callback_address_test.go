package identity

import (
	"bytes"
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// callbackOf returns the callback settings and the signing keys of a key.
func (f fixture) callbackOf(t *testing.T, id string) (own KeyCallback, keys [][]byte) {
	t.Helper()
	err := f.store.View(t.Context(), func(r storage.Reader) (err error) {
		if own, err = f.KeyCallback(r, id); err != nil || own.URL == "" {
			return err
		}
		keys, err = f.CallbackKeys(r, id)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return own, keys
}

// disableCallback records that the receiver of an address has answered that it is gone.
func (f fixture) disableCallback(t *testing.T, id, url string) {
	t.Helper()
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		_, err := f.DisableCallback(txn, f.clock.Now(), id, url)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestSettingACallbackAddressEnablesItAgain(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := context.Background()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	address := "https://example.com/done"
	key, _, err := f.CreateOwnKey(ctx, a, KeySpec{CallbackURL: address})
	if err != nil {
		t.Fatal(err)
	}
	f.disableCallback(t, key.ID, "https://example.com/before") // about an address that the key no longer has
	if own, keys := f.callbackOf(t, key.ID); own != (KeyCallback{URL: address}) || len(keys) != 0 {
		t.Errorf("after another address was disabled: %+v, %d keys", own, len(keys))
	}
	f.clock.Advance(time.Minute)
	at := f.clock.Now().Unix()
	f.disableCallback(t, key.ID, address)
	f.clock.Advance(time.Minute)
	f.disableCallback(t, key.ID, address) // repeated
	if own, _ := f.callbackOf(t, key.ID); own != (KeyCallback{address, address}) {
		t.Errorf("after it was disabled: %+v", own)
	}
	if shown := must(f.OwnKey(ctx, a, key.ID))(t); shown.CallbackDisabled != at || shown.CallbackURL != address {
		t.Errorf("the key is %+v", shown)
	}
	events, _, err := f.Audit.Activity(ctx, a.UserID, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, e := range events {
		if e.Action == "key.callback_gone" && e.Key == key.ID && e.Actor == "callback receiver" {
			recorded++
		}
	}
	if recorded != 1 {
		t.Errorf("%d events, want 1: %+v", recorded, events)
	}
	name := "laptop"
	if shown := must(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{Name: &name}))(t); shown.CallbackDisabled == 0 {
		t.Error("a new name has enabled the address")
	}
	if shown := must(f.ChangeOwnKey(ctx, a, key.ID, KeyChange{CallbackURL: &address}))(t); shown.CallbackDisabled != 0 {
		t.Error("the address is still disabled after it was set again")
	}
	if own, _ := f.callbackOf(t, key.ID); own != (KeyCallback{URL: address}) {
		t.Errorf("after it was set again: %+v", own)
	}
}

func TestARevokedKeyStillHasItsCallbackAddress(t *testing.T) {
	t.Parallel()
	f := newPeople(t)
	ctx := context.Background()
	f.userWithPassword(t, "ann")
	a := f.login(t, "ann").Account
	key, _, err := f.CreateOwnKey(ctx, a, KeySpec{CallbackURL: "https://example.com/done"})
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := f.RenewCallbackSecret(ctx, a, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	must(f.RevokeOwnKey(ctx, a, key.ID))(t)
	want, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	if own, keys := f.callbackOf(t, key.ID); own.URL != "https://example.com/done" || len(keys) != 1 || !bytes.Equal(keys[0], want) {
		t.Errorf("%+v with %d signing keys", own, len(keys))
	}
	if own, _ := f.callbackOf(t, "key_unknown"); own != (KeyCallback{}) {
		t.Errorf("a key without a record: %+v", own)
	}
	f.disableCallback(t, "key_unknown", "https://example.com/done")
}

func TestParseCallbackSecret(t *testing.T) {
	t.Parallel()
	bytesOf := func(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, n)) }
	for text, ok := range map[string]bool{
		"whsec_" + bytesOf(24): true,
		"whsec_" + bytesOf(64): true,
		"whsec_" + bytesOf(23): false,
		"whsec_" + bytesOf(65): false,
		bytesOf(32):            false,
		"whsec_":               false,
		"whsec_!!!!":           false,
		"":                     false,
	} {
		key, err := ParseCallbackSecret(text)
		if (err == nil) != ok || ok && len(key) < 24 {
			t.Errorf("%q is %d bytes, %v", text, len(key), err)
		}
		if err != nil && len(text) > 10 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}
