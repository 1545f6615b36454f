// Package seal encrypts secrets that must be read again, such as TOTP seeds,
// with a master key that is not in the store. A stolen store therefore reveals
// none of them. A [Keyring] holds the master key and, during a rotation, its
// predecessors; a [Box] of a keyring encrypts for one purpose. Of this module it
// imports only storage.
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

// An envelope has the version, the master key id, the nonce and the AES-256-GCM
// ciphertext with its 16-byte tag.
const (
	envelopeVersion = 1
	keyIDSize       = 8
	nonceSize       = 12
	headSize        = 1 + keyIDSize + nonceSize
	overhead        = headSize + 16
)

// Errors of Seal and Open.
var (
	// ErrNoKey means that the keyring is empty or lacks the key that encrypted
	// the secret.
	ErrNoKey = errors.New("no master key for this secret")

	// ErrInvalidEnvelope means that the envelope is malformed, was changed, or
	// belongs to another record or purpose.
	ErrInvalidEnvelope = errors.New("the sealed secret cannot be decrypted")
)

// Box encrypts and decrypts the secrets of one purpose. Each purpose has its
// own key, so that a secret of one purpose is never decrypted for another.
type Box struct {
	keyring *Keyring
	purpose string
}

// For returns the box of a purpose, which is a short word.
func (k *Keyring) For(purpose string) Box { return Box{k, purpose} }

// Seal encrypts text for the record with this id, with the newest master key. The
// envelope opens only for that record. If there is no master key, Seal returns
// [ErrNoKey]. Before the first Seal of a store, call [Keyring.Mark].
//
// Call Seal in the transaction that stores the envelope. A concurrent rotation
// then sees the envelope and keeps its key.
func (b Box) Seal(id string, text []byte) ([]byte, error) {
	keys := b.keyring.all()
	if len(keys) == 0 {
		return nil, ErrNoKey
	}
	envelope := make([]byte, headSize, overhead+len(text))
	envelope[0] = envelopeVersion
	copy(envelope[1:], keys[0].id[:])
	nonce := envelope[1+keyIDSize:]
	_, _ = rand.Read(nonce) // never returns an error
	return keys[0].aead(b.purpose).Seal(envelope, nonce, text, additionalData(envelope, id)), nil
}

// Open returns the text of an envelope of the record with this id. Its errors are
// [ErrNoKey] and [ErrInvalidEnvelope].
func (b Box) Open(id string, envelope []byte) ([]byte, error) {
	if len(envelope) < overhead || envelope[0] != envelopeVersion {
		return nil, ErrInvalidEnvelope
	}
	for _, key := range b.keyring.all() {
		if [keyIDSize]byte(envelope[1:]) != key.id {
			continue
		}
		text, err := key.aead(b.purpose).Open(nil, envelope[1+keyIDSize:headSize], envelope[headSize:], additionalData(envelope, id))
		if err != nil {
			return nil, ErrInvalidEnvelope
		}
		return text, nil
	}
	return nil, ErrNoKey
}

// Reseal encrypts the text with the newest master key and reports whether the
// envelope changed. It returns an up-to-date envelope unchanged.
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

// upToDate reports whether the newest master key encrypted the envelope.
func (b Box) upToDate(envelope []byte) bool {
	keys := b.keyring.all()
	return len(keys) > 0 && len(envelope) >= overhead && [keyIDSize]byte(envelope[1:]) == keys[0].id
}

// additionalData returns the data that the tag authenticates in addition to the
// text: version, key id and record id.
func additionalData(envelope []byte, id string) []byte {
	return append(append([]byte(nil), envelope[:1+keyIDSize]...), id...)
}

// KeySize is the size of a master key in bytes.
const KeySize = 32

// masterKey is one master key. The id is derived from the secret and does not
// reveal it.
type masterKey struct {
	secret [KeySize]byte
	id     [keyIDSize]byte
}

func newMasterKey(secret [KeySize]byte) masterKey {
	key := masterKey{secret: secret}
	key.id = [keyIDSize]byte(key.derive("key id", keyIDSize))
	return key
}

// aead returns the cipher of a purpose.
func (k masterKey) aead(purpose string) cipher.AEAD {
	block, err := aes.NewCipher(k.derive("seal "+purpose, KeySize))
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err)) // unreachable: the key size is valid
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err))
	}
	return aead
}

// derive returns a separate key for each use, by HKDF-SHA-256 (RFC 5869).
func (k masterKey) derive(use string, size int) []byte {
	sub, err := hkdf.Key(sha256.New, k.secret[:], nil, "modelgate "+use, size)
	if err != nil {
		panic(fmt.Sprintf("seal: %v", err)) // unreachable: HKDF allows this size
	}
	return sub
}
