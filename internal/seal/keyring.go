package seal

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// Keyring holds the master keys: the first encrypts, all of them decrypt. A nil
// Keyring has no keys, and all operations that need one fail. It may be used
// concurrently.
type Keyring struct {
	current  atomic.Pointer[keys]
	changing sync.Mutex // held while the keys are replaced
}

// keys is the content of a keyring at one time.
type keys struct {
	list []masterKey // newest first
	path string      // of the key file; empty if the keys are in the configuration
}

// errForm describes a master key. Errors never quote the text, because it is a
// mistyped secret.
var errForm = errors.New("a master key is 32 random bytes as base64 or hex, such as `openssl rand -base64 32` prints")

// FromTexts returns a keyring of configured keys, newest first: 32 bytes each,
// as base64 of any kind or as hex. It refuses empty keys, keys of one repeated
// byte, and duplicates.
func FromTexts(texts ...string) (*Keyring, error) {
	if len(texts) == 0 {
		return nil, errForm
	}
	list := make([]masterKey, 0, len(texts))
	for i, text := range texts {
		key, err := parseKey(text)
		if err != nil {
			return nil, fmt.Errorf("master key %d of %d: %w", i+1, len(texts), err)
		}
		for _, other := range list {
			if other.id == key.id {
				return nil, fmt.Errorf("master key %d of %d is given twice", i+1, len(texts))
			}
		}
		list = append(list, key)
	}
	return newKeyring(list, ""), nil
}

// Random returns a keyring with a random key that is not saved, for a store in
// memory.
func Random() *Keyring { return newKeyring([]masterKey{newRandomKey()}, "") }

func newKeyring(list []masterKey, path string) *Keyring {
	k := new(Keyring)
	k.current.Store(&keys{list, path})
	return k
}

// Equal reports whether the keyrings have the same keys in the same order, and
// the same path.
func (k *Keyring) Equal(other *Keyring) bool {
	return k.Path() == other.Path() && slices.EqualFunc(k.all(), other.all(), func(a, b masterKey) bool { return a.id == b.id })
}

func (k *Keyring) all() []masterKey {
	if k == nil {
		return nil
	}
	return k.current.Load().list
}

func newRandomKey() masterKey {
	var secret [KeySize]byte
	_, _ = rand.Read(secret[:]) // never returns an error
	return newMasterKey(secret)
}

// parseKey decodes the text of a master key.
func parseKey(text string) (masterKey, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return masterKey{}, fmt.Errorf("the key is empty: %w", errForm)
	}
	secret, err := hex.DecodeString(text)
	if err != nil || len(secret) != KeySize {
		plain := strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
		secret, err = base64.RawStdEncoding.Strict().DecodeString(plain)
	}
	if err != nil || len(secret) != KeySize {
		return masterKey{}, errForm
	}
	if bytes.Count(secret, secret[:1]) == KeySize {
		return masterKey{}, fmt.Errorf("the key repeats one byte: %w", errForm)
	}
	return newMasterKey([KeySize]byte(secret)), nil
}

// text returns the key as written in a key file.
func (k masterKey) text() string { return base64.StdEncoding.EncodeToString(k.secret[:]) }
