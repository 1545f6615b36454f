package seal

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/caddy-modelgate/modelgate/storage"
)

// checkRecord is the record at meta/seal. For each master key that may have
// encrypted something in the store, it has a known text encrypted with that key.
// A keyring that decrypts all of these texts has the right keys.
type checkRecord struct {
	Sealed [][]byte `json:"sealed"`
}

var checkKey = []byte("meta/seal")

const (
	checkPurpose = "check"
	checkText    = "modelgate"
)

// ErrWrongKey means that the keyring lacks a key with which the store was
// encrypted.
var ErrWrongKey = errors.New("the store was sealed with another master key: configure that key; during a rotation, after the new key")

// Sealed reports whether a store may contain encrypted secrets.
func Sealed(ctx context.Context, store *storage.Store) (sealed bool, err error) {
	err = store.View(ctx, func(r storage.Reader) error {
		record, err := r.Get(checkKey)
		sealed = record != nil
		return err
	})
	return sealed, err
}

// Verify returns [ErrWrongKey] if the keyring lacks a key that may have
// encrypted something in the store. It changes nothing.
func (k *Keyring) Verify(ctx context.Context, store *storage.Store) error {
	return store.View(ctx, func(r storage.Reader) error {
		_, _, err := k.verify(r)
		return err
	})
}

// Check returns [ErrWrongKey] if the keyring lacks a key that may have
// encrypted something in the store. If the store contains encrypted secrets,
// Check also registers the newest key.
func (k *Keyring) Check(ctx context.Context, store *storage.Store) error {
	return store.Update(ctx, func(t storage.Txn) error {
		record, marked, err := k.verify(t)
		if err != nil {
			return err
		}
		if err := k.publish(t, store); err != nil || marked || len(record.Sealed) == 0 {
			return err
		}
		return k.mark(t, store, record.Sealed)
	})
}

// Mark registers the newest key as one that encrypts secrets of the store. It
// must run before the first secret is encrypted. A store that never had a
// secret, such as a restored backup, may be opened with any key.
func (k *Keyring) Mark(ctx context.Context, store *storage.Store) error {
	var marked bool
	err := store.View(ctx, func(r storage.Reader) (err error) {
		_, marked, err = k.verify(r)
		return err
	})
	if err != nil || marked {
		return err
	}
	return store.Update(ctx, func(t storage.Txn) error {
		record, marked, err := k.verify(t)
		if err != nil || marked {
			return err
		}
		return k.mark(t, store, record.Sealed)
	})
}

// verify decrypts the known texts of the store, and reports whether one of them
// is encrypted with the newest key.
func (k *Keyring) verify(r storage.Reader) (record checkRecord, marked bool, err error) {
	if _, err := storage.GetRecord(r, checkKey, &record); err != nil {
		return record, false, err
	}
	box := k.For(checkPurpose)
	for _, sealed := range record.Sealed {
		text, err := box.Open(string(checkKey), sealed)
		if err != nil || string(text) != checkText {
			return record, false, fmt.Errorf("%w: %w", ErrWrongKey, cmp.Or(err, ErrInvalidEnvelope))
		}
		marked = marked || box.upToDate(sealed)
	}
	return record, marked, nil
}

// Renew leaves only the newest master key registered. It must run after all
// other records were encrypted with that key; from then on a start needs only
// that one. A store without encrypted secrets stays unchanged. See [Keyring.BeginRenew]
// for a shared store.
func (k *Keyring) Renew(ctx context.Context, store *storage.Store) error {
	return store.Update(ctx, func(t storage.Txn) error {
		if before, err := t.Get(checkKey); err != nil || before == nil {
			return err
		}
		if err := k.known(t, store, true); err != nil {
			return err
		}
		return k.mark(t, store, nil)
	})
}

// mark adds the newest master key to those that may have encrypted something.
func (k *Keyring) mark(t storage.Txn, store *storage.Store, before [][]byte) error {
	if err := k.known(t, store, false); err != nil {
		return err
	}
	sealed, err := k.For(checkPurpose).Seal(string(checkKey), []byte(checkText))
	if err != nil {
		return err
	}
	return storage.SetRecord(t, checkKey, checkRecord{append([][]byte{sealed}, before...)})
}

// Replace replaces the keys with those of other, after a reload of the
// configuration. If other lacks a key of the store, it returns [ErrWrongKey]
// and changes nothing.
func (k *Keyring) Replace(ctx context.Context, store *storage.Store, other *Keyring) error {
	if err := other.Check(ctx, store); err != nil {
		return err
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	k.current.Store(other.current.Load())
	return nil
}
