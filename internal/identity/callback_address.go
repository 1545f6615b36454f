package identity

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/storage"
)

// KeyCallback is what a key says about its callbacks.
type KeyCallback struct {
	// URL is its own address; empty: it has none.
	URL string

	// Gone is an address whose receiver has said that it is gone; empty: none has.
	Gone string
}

// KeyCallback returns what a key says about its callbacks. It says so after it
// was revoked too: what was begun by it is still told. A key without a record
// says nothing: that of the console has none, and one that ended long ago.
func (d *Directory) KeyCallback(r storage.Reader, id string) (KeyCallback, error) {
	key, err := keyTable.GetOrZero(r, id)
	if err != nil {
		return KeyCallback{}, err
	}
	return KeyCallback{key.CallbackURL, key.CallbackGone}, nil
}

// CallbackKeys returns the secrets by which what goes to a key's own address is
// signed, newest first, as the bytes that sign; none when it has none.
func (d *Directory) CallbackKeys(r storage.Reader, id string) ([][]byte, error) {
	key, err := findKey(r, id)
	if err != nil {
		return nil, err
	}
	secrets, err := d.callbackSecrets(key)
	if err != nil {
		return nil, err
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		if keys[i], err = ParseCallbackSecret(secret.Reveal()); err != nil {
			return nil, fmt.Errorf("the callback secret of %s: %w", id, err)
		}
	}
	return keys, nil
}

// ParseCallbackSecret returns the bytes that sign of a secret as it is shown:
// "whsec_" and the base64 of 24 to 64 bytes. The error does not repeat it.
func ParseCallbackSecret(text string) ([]byte, error) {
	coded, found := strings.CutPrefix(text, callbackPrefix)
	key, err := base64.StdEncoding.DecodeString(coded)
	if !found || err != nil || len(key) < minCallbackBytes || len(key) > maxCallbackBytes {
		return nil, fmt.Errorf("a callback secret is %s and the base64 of %d to %d random bytes", callbackPrefix, minCallbackBytes, maxCallbackBytes)
	}
	return key, nil
}

// DisableCallback notes that the receiver of an address has said that it is gone.
// It does nothing when the key has another address of its own by now. The event that
// it returns is for [audit.Log.OnAudit] when the transaction is durable; nil: there is
// none.
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
	// A callback is sent after the request that ordered it.
	return event, audit.Record(context.Background(), t, now, event)
}

// callbackActor is who ends the use of an address, for the audit.
const callbackActor = "callback receiver"
