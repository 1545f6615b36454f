package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrConfigured means that the keys are in the configuration, where the
// operator adds a new key before the old ones.
var ErrConfigured = errors.New("the master key is in the configuration: add the new key there, before the old one")

// Path returns the path of the key file, or of the link to it. It is empty if
// the keys are in the configuration or only in memory.
func (k *Keyring) Path() string {
	if k == nil {
		return ""
	}
	return k.current.Load().path
}

// Count returns the number of master keys: more than one during a rotation.
func (k *Keyring) Count() int { return len(k.all()) }

// Rotate generates a new master key and durably writes it to the key file as
// the first one, before anything is encrypted with it. The earlier keys still
// decrypt. After all records were encrypted again, [Keyring.DropOld] ends the
// rotation. After an error, either nothing has changed or the file has one more
// key, which is harmless.
func (k *Keyring) Rotate() error {
	return k.rewrite(func(keys []masterKey) []masterKey {
		return slices.Insert(slices.Clone(keys), 0, newRandomKey())
	})
}

// DropOld removes all keys but the first from the key file. Secrets that are
// still encrypted with them are lost, so it must run after all were encrypted
// again.
func (k *Keyring) DropOld() error {
	return k.rewrite(func(keys []masterKey) []masterKey { return slices.Clone(keys[:1]) })
}

// rewrite replaces the keys with the result of next, first in the file and
// then in memory.
func (k *Keyring) rewrite(next func([]masterKey) []masterKey) error {
	if k == nil {
		return ErrNoKey
	}
	k.changing.Lock()
	defer k.changing.Unlock()
	path := k.Path()
	if path == "" {
		return ErrConfigured
	}
	list := next(k.all())
	// The new file is created next to the file itself, not next to a link to it.
	// A rename over the link would leave the old file unchanged.
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		err = writeFile(file, list, func(temp string) error { return os.Rename(temp, file) })
	}
	if err != nil {
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	k.current.Store(&keys{list, path})
	return nil
}
