package identity

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Callbacks are signed as Standard Webhooks defines: a secret is "whsec_" and the
// base64 of 24 to 64 random bytes. New secrets have 32.
const (
	callbackPrefix = "whsec_"
	callbackBytes  = 32

	minCallbackBytes = 24
	maxCallbackBytes = 64

	// callbackPurpose is the purpose with which the secrets are sealed, together with the id of the key.
	callbackPurpose = "callback"

	// callbackGrace is how long callbacks are also signed with the previous secret, so that the
	// receiver has time to change it.
	callbackGrace = 24 * time.Hour

	maxCallbackURL = 2048
)

// checkCallbackURL returns an error if callbacks cannot be sent to an address. Whether a connection
// to it is allowed is checked when they are sent.
func checkCallbackURL(text string) *fault.Fault {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case len(text) > maxCallbackURL:
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address has at most %d bytes, this has %d", maxCallbackURL, len(text))
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "", u.Opaque != "", !printable(text):
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address is absolute, such as https://example.com/done")
	case u.User != nil:
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address has no user name and no password; callbacks are signed")
	case u.Fragment != "" || u.RawFragment != "":
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address has no fragment: it would not be sent")
	}
	return nil
}

// SetCallbackCheck sets an additional check of new callback addresses. The error of check
// continues the sentence "a callback address …".
func (d *Directory) SetCallbackCheck(check func(url string) error) { d.callbacks.Store(&check) }

// allowCallback returns an error if the configuration does not allow a new callback address.
// Earlier addresses stay.
func (d *Directory) allowCallback(text string) *fault.Fault {
	check := d.callbacks.Load()
	if text == "" || check == nil {
		return nil
	}
	if err := (*check)(text); err != nil {
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address %v", err)
	}
	return nil
}

// printable reports whether a text is printable ASCII, as a URL is.
func printable(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c > '~' })
}

// RenewCallbackSecret gives a key of the account's user a new secret that signs its callbacks,
// and returns it; it is shown only here. The previous secret signs for 24 more hours. A secret that
// was still in grace ends now.
func (d *Directory) RenewCallbackSecret(ctx context.Context, a *Account, id string) (Key, Secret, error) {
	if err := d.keyring.Mark(ctx, d.store); err != nil {
		return Key{}, "", factor.SealFault(err)
	}
	drawn := make([]byte, callbackBytes)
	_, _ = rand.Read(drawn) // never fails: it ends the process instead
	secret := Secret(callbackPrefix + base64.StdEncoding.EncodeToString(drawn))
	key, err := d.changeOwnKey(ctx, a, id, func(key *keyRecord) (*audit.Event, error) {
		now := d.store.Now()
		if refusal := key.ended(now); refusal != nil {
			return nil, refusal
		}
		sealed, err := d.keyring.For(callbackPurpose).Seal(key.ID, []byte(secret.Reveal()))
		if err != nil {
			return nil, err
		}
		key.CallbackPrevious, key.CallbackPreviousUntil = key.CallbackSecret, 0
		if key.CallbackPrevious != nil {
			key.CallbackPreviousUntil = now.Add(callbackGrace).Unix()
		}
		key.CallbackSecret, key.CallbackSecretCreated = sealed, now.Unix()
		return &audit.Event{Actor: a.UserID, Action: "key.callback_secret", User: a.UserID, Key: key.ID}, nil
	})
	return key, secret, err
}

// KeyCallback is the callback address of a key and its state.
type KeyCallback struct {
	// URL is the key's own address; empty: there is none.
	URL string

	// Gone is an address whose receiver has answered that it is gone; empty: there is none.
	Gone string
}

// KeyCallback returns the callback address of a key, also after the key was revoked, because its
// tasks continue. It returns the zero value for a key without a record: the key of the console, or
// one that ended long ago.
func (d *Directory) KeyCallback(r storage.Reader, id string) (KeyCallback, error) {
	key, err := keyTable.GetOrZero(r, id)
	if err != nil {
		return KeyCallback{}, err
	}
	return KeyCallback{key.CallbackURL, key.CallbackGone}, nil
}

// CallbackKeys returns the bytes that sign the callbacks to a key's own address, newest first. The
// list may be empty.
func (d *Directory) CallbackKeys(r storage.Reader, id string) (keys [][]byte, err error) {
	key, err := findKey(r, id)
	if err != nil {
		return nil, err
	}
	sealed := [][]byte{key.CallbackSecret}
	if d.store.Now().Unix() < key.CallbackPreviousUntil {
		sealed = append(sealed, key.CallbackPrevious)
	}
	for _, envelope := range sealed {
		if envelope == nil {
			continue
		}
		secret, err := d.keyring.For(callbackPurpose).Open(id, envelope)
		var signer []byte
		if err == nil {
			signer, err = ParseCallbackSecret(string(secret))
		}
		if err != nil {
			return nil, fmt.Errorf("the callback secret of %s: %w", id, err)
		}
		keys = append(keys, signer)
	}
	return keys, nil
}

// ParseCallbackSecret returns the signing bytes of a secret in its text form: "whsec_" and the
// base64 of 24 to 64 bytes. The error does not contain the secret.
func ParseCallbackSecret(text string) ([]byte, error) {
	coded, found := strings.CutPrefix(text, callbackPrefix)
	key, err := base64.StdEncoding.DecodeString(coded)
	if !found || err != nil || len(key) < minCallbackBytes || len(key) > maxCallbackBytes {
		return nil, fmt.Errorf("a callback secret is %s and the base64 of %d to %d random bytes", callbackPrefix, minCallbackBytes, maxCallbackBytes)
	}
	return key, nil
}

// DisableCallback records that the receiver of an address has answered that it is gone. It does
// nothing if the key has another address now. The returned event is for
// [audit.Log.OnAudit] when the transaction is durable; nil: there is none.
func (d *Directory) DisableCallback(t storage.Txn, now time.Time, id, url string) (*audit.Event, error) {
	key, err := keyTable.Get(t, id)
	if err != nil || key == nil || key.CallbackGone == url || key.CallbackURL != "" && key.CallbackURL != url {
		return nil, err
	}
	after := *key
	after.CallbackGone, after.CallbackDisabled = url, max(now.Unix(), 1)
	if err := keyTable.Put(t, key, &after); err != nil {
		return nil, err
	}
	event := &audit.Event{Actor: callbackActor, Action: "key.callback_gone", User: key.UserID, Key: key.ID}
	// The callback is sent after the end of the request, so the context is not that of the request.
	return event, audit.Record(context.Background(), t, now, event)
}

// callbackActor is the actor of the event that an address is gone.
const callbackActor = "callback receiver"
