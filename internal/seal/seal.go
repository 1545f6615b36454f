// Package seal encrypts secrets that must be read again, such as TOTP seeds,
// under a master key that is not in the store, so that a stolen store reveals
// none of them. A [Keyring] holds the master key and, during a rotation, its
// predecessors; a [Box] of a keyring encrypts for one purpose.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

// The envelope of what is sealed: version, id of the master key, nonce, and
// what AES-256-GCM makes of the text (as long as it, and a tag of 16 bytes).
const (
	envelopeVersion = 1
	keyIDSize       = 8
	nonceSize       = 12
	headSize        = 1 + keyIDSize + nonceSize
	overhead        = headSize + 16
)

// What may go wrong with a sealed secret.
var (
	// ErrNoKey means that there is no master key at all, or not the one by
	// which this was sealed.
	ErrNoKey = errors.New("no master key for this secret")

	// ErrBroken means that what is sealed was changed, belongs to another record
	// or purpose, or is no envelope.
	ErrBroken = errors.New("the sealed secret cannot be opened")
)

// Box encrypts and decrypts the secrets of one purpose. Each purpose has its
// own key, so that a secret of one purpose is never decrypted for another.
type Box struct {
	ring    *Keyring
	purpose string
}

// For returns the box of a purpose, which is a short word.
func (k *Keyring) For(purpose string) Box { return Box{k, purpose} }

// Seal seals text for the record with this id, by the newest master key. The
// envelope opens for that record only. It fails with [ErrNoKey] when there is no
// master key. [Keyring.Mark] comes before the first one of a store.
//
// Call it inside the transaction that stores the envelope: a rotation that runs
// meanwhile then sees it, and does not drop the key it was sealed by.
func (b Box) Seal(id string, text []byte) ([]byte, error) {
	keys := b.ring.all()
	if len(keys) == 0 {
		return nil, ErrNoKey
	}
	envelope := make([]byte, headSize, overhead+len(text))
	envelope[0] = envelopeVersion
	copy(envelope[1:], keys[0].id[:])
	nonce := envelope[1+keyIDSize:]
	_, _ = rand.Read(nonce) // never fails: it ends the process instead
	return keys[0].aead(b.purpose).Seal(envelope, nonce, text, bound(envelope, id)), nil
}

// Open returns the text of an envelope that was sealed for the record with this
// id. It fails with [ErrNoKey] or [ErrBroken].
func (b Box) Open(id string, envelope []byte) ([]byte, error) {
	if len(envelope) < overhead || envelope[0] != envelopeVersion {
		return nil, ErrBroken
	}
	for _, key := range b.ring.all() {
		if [keyIDSize]byte(envelope[1:]) != key.id {
			continue
		}
		text, err := key.aead(b.purpose).Open(nil, envelope[1+keyIDSize:headSize], envelope[headSize:], bound(envelope, id))
		if err != nil {
			return nil, ErrBroken
		}
		return text, nil
	}
	return nil, ErrNoKey
}

// Reseal returns an envelope of the same text by the newest master key, and
// whether that is another than before. One that is up to date is returned as it
// is.
func (b Box) Reseal(id string, envelope []byte) ([]byte, bool, error) {
	if b.upToDate(envelope) {
		return envelope, false, nil
	}
	text, err := b.Open(id, envelope)
	if err != nil {
		return nil, false, err
	}
	envelope, err = b.Seal(id, text)
	return envelope, err == nil, err
}

// upToDate tells whether an envelope is of the newest master key.
func (b Box) upToDate(envelope []byte) bool {
	keys := b.ring.all()
	return len(keys) > 0 && len(envelope) >= overhead && [keyIDSize]byte(envelope[1:]) == keys[0].id
}

// bound is what the tag vouches for beside the text: version and id of the key,
// and the record it belongs to.
func bound(envelope []byte, id string) []byte {
	return append(append([]byte(nil), envelope[:1+keyIDSize]...), id...)
}

// KeySize is the size of a master key in bytes.
const KeySize = 32

// masterKey is one master key. Its id is derived from it, and tells nothing of
// it.
type masterKey struct {
	secret [KeySize]byte
	id     [keyIDSize]byte
}

func newMasterKey(secret [KeySize]byte) masterKey {
	key := masterKey{secret: secret}
	key.id = [keyIDSize]byte(key.derive("key id", keyIDSize))
	return key
}

// aead is the cipher of a purpose.
func (k masterKey) aead(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(k.derive("seal "+purpose, KeySize))
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err)) // the size of the key is right
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err))
	}
	return aead
}

// derive returns a key of its own for each use of the master key: HKDF of RFC
// 5869 with SHA-256.
func (k masterKey) derive(use string, size int) []byte {
	sub, err := hkdf.Key(sha256.New, k.secret[:], nil, "modelgate "+use, size)
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err)) // the size is far below the bound
	}
	return sub
}
