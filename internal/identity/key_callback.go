package identity

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/url"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Callbacks are signed as Standard Webhooks says: a secret is "whsec_" and the
// base64 of 24 to 64 random bytes. Here they have 32.
const (
	callbackPrefix = "whsec_"
	callbackBytes  = 32

	minCallbackBytes = 24
	maxCallbackBytes = 64

	// callbackPurpose is what the secrets are sealed for, with the id of the key.
	callbackPurpose = "callback"

	// CallbackGrace is how long a callback is signed by the secret before as
	// well, so that whoever receives it has time to change his.
	CallbackGrace = 24 * time.Hour

	maxCallbackURL = 2048
)

// checkCallbackURL refuses an address that callbacks could not be sent to.
// Whether it may be reached is judged when they are, on the connected address.
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
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address holds no user and no password; callbacks are signed")
	case u.Fragment != "" || u.RawFragment != "":
		return fault.At(fault.InvalidParameter, "callback_url", "a callback address has no fragment: it would not be sent")
	}
	return nil
}

// SetCallbackCheck sets what else is asked of a callback address that is given,
// from now on. The error of check says why it is refused, as the rest of a
// sentence about the address.
func (d *Directory) SetCallbackCheck(check func(url string) error) { d.callbacks.Store(&check) }

// allowCallback refuses an address that a key is given and that callbacks could
// not go to as the gateway is configured. What was given before stays.
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

// printable tells whether a text is ASCII that can be seen, as an address on the
// wire is.
func printable(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return true
}

// RenewCallbackSecret gives a key of the user who asks a new secret by which its
// callbacks are signed, or its first, and returns it; it is shown this once. The
// one before signs for 24 hours more; one that was still in grace ends now.
func (d *Directory) RenewCallbackSecret(ctx context.Context, a *Account, id string) (Key, Secret, error) {
	if d.keyring == nil {
		return Key{}, "", fault.New(fault.Internal, "there is no master key to seal the secret with")
	}
	if err := d.keyring.Mark(ctx, d.store); err != nil {
		return Key{}, "", fault.OfStore(err)
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
			key.CallbackPreviousUntil = now.Add(CallbackGrace).Unix()
		}
		key.CallbackSecret, key.CallbackSecretCreated = sealed, now.Unix()
		return &audit.Event{Actor: a.UserID, Action: "key.callback_secret", User: a.UserID, Key: key.ID}, nil
	})
	if err != nil {
		return Key{}, "", err
	}
	return key, secret, nil
}

// CallbackSecrets returns the secrets by which a callback of a key is signed now,
// newest first; none when it has none.
func (d *Directory) CallbackSecrets(ctx context.Context, keyID string) ([]Secret, error) {
	var key *keyRecord
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		key, err = findKey(r, keyID)
		return err
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	return d.callbackSecrets(key)
}

func (d *Directory) callbackSecrets(key *keyRecord) ([]Secret, error) {
	sealed := [][]byte{key.CallbackSecret}
	if d.store.Now().Unix() < key.CallbackPreviousUntil {
		sealed = append(sealed, key.CallbackPrevious)
	}
	var secrets []Secret
	for _, envelope := range sealed {
		if envelope == nil {
			continue
		}
		if d.keyring == nil {
			return nil, fmt.Errorf("the callback secret of %s: there is no master key", key.ID)
		}
		secret, err := d.keyring.For(callbackPurpose).Open(key.ID, envelope)
		if err != nil {
			return nil, fmt.Errorf("the callback secret of %s: %w", key.ID, err)
		}
		secrets = append(secrets, Secret(secret))
	}
	return secrets, nil
}
