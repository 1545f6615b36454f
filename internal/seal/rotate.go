package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrConfigured means that the keys stand in the configuration: the operator
// writes a new one before the old ones there.
var ErrConfigured = errors.New("the master key stands in the configuration: put a new one before it there")

// Path returns where the key file is, or the link to it; it is empty when the keys stand in the
// configuration or only in memory.
func (k *Keyring) Path() string {
	if k == nil {
		return ""
	}
	return k.now.Load().path
}

// Count returns how many master keys there are: more than one while a rotation
// has not ended.
func (k *Keyring) Count() int { return len(k.all()) }

// Rotate draws a new master key and puts it first in the key file, durably,
// before anything is sealed by it. The keys before it still open. When all
// records are sealed by it, [Keyring.DropOld] ends the rotation. After a failure
// nothing has changed, or the file holds one key more, which does no harm.
func (k *Keyring) Rotate() error {
	return k.rewrite(func(keys []masterKey) []masterKey {
		return slices.Insert(slices.Clone(keys), 0, drawKey())
	})
}

// DropOld takes all keys but the first out of the key file. What is still sealed
// by them is lost, so it belongs after a reseal that left nothing.
func (k *Keyring) DropOld() error {
	return k.rewrite(func(keys []masterKey) []masterKey { return slices.Clone(keys[:1]) })
}

// rewrite replaces the keys by what next makes of them, first in the file and
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
	// Beside the file itself: a rename over a link to it would leave the keys
	// before in force where the operator keeps them, and the new one nowhere else.
	file, err := filepath.EvalSymlinks(path)
	if err == nil {
		err = writeFile(file, list, func(temp string) error { return os.Rename(temp, file) })
	}
	if err != nil {
		return fmt.Errorf("writing the key file %s: %w", path, err)
	}
	k.now.Store(&keys{list, path})
	return nil
}
