package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// fileHeader is the comment at the beginning of a new key file. Lines that begin
// with # are comments.
const fileHeader = `# Master keys of modelgate, newest first. They encrypt secrets in the store.
# Without this file those secrets are lost. Back it up separately from the store.
`

// FromFile reads the keys of the key file at path, newest first, one per line.
// If there is no file and the store never had encrypted secrets, it creates the
// file. It refuses a file that other users of the machine may read. It also
// refuses a store whose key file is missing, since a new key would silently
// lose its secrets. It removes key files that a crash left incomplete.
func FromFile(ctx context.Context, store *storage.Store, path string) (*Keyring, error) {
	removeStale(path)
	k, err := ReadFile(ctx, store, path)
	if err != nil || k != nil {
		return k, err
	}
	if err := createFile(path); err != nil {
		return nil, fmt.Errorf("create key file %s: %w", path, err)
	}
	// Only a durable key may be used.
	return ReadFile(ctx, store, path)
}

// ReadFile returns the keyring that [FromFile] would return, and changes
// nothing. It returns nil without an error if FromFile would create the file.
func ReadFile(ctx context.Context, store *storage.Store, path string) (*Keyring, error) {
	keys, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		sealed, err := Sealed(ctx, store)
		if err == nil && sealed {
			err = fmt.Errorf("key file %s: missing; the store has secrets that need it: restore the file or its backup", path)
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return fileKeyring(path, keys)
}

func fileKeyring(path string, texts []string) (*Keyring, error) {
	k, err := FromTexts(texts...)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return newKeyring(k.all(), path), nil
}

// CheckFile returns an error unless the file at path may be used as a key file:
// a regular file that only its owner may read. The error wraps [fs.ErrNotExist]
// if there is none.
func CheckFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return fmt.Errorf("key file %s: not a regular file", path)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("key file %s: mode %#o is too open; allowed: 0600: run chmod 600, and rotate the key if another user may have read it", path, info.Mode().Perm())
	}
	return nil
}

func readFile(path string) (texts []string, err error) {
	if err := CheckFile(path); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			texts = append(texts, line)
		}
	}
	return texts, nil
}

// createFile creates a key file with a new key. It does not replace a file that
// another process has created meanwhile.
func createFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return writeFile(path, []masterKey{newRandomKey()}, func(temp string) error {
		// Unlike a rename, a link never replaces an existing file.
		if err := os.Link(temp, path); err == nil || errors.Is(err, fs.ErrExist) {
			return os.Remove(temp)
		}
		return os.Rename(temp, path) // a file system without links
	})
}

// writeFile durably writes keys to a temporary file next to path, calls place to
// rename it, and syncs the directory.
func writeFile(path string, keys []masterKey, place func(temp string) error) error {
	dir := filepath.Dir(path)
	file, err := os.CreateTemp(dir, filepath.Base(path)+".*"+tempSuffix) // O_EXCL, mode 0600
	if err != nil {
		return err
	}
	var content strings.Builder
	content.WriteString(fileHeader)
	for _, key := range keys {
		content.WriteString(key.text() + "\n")
	}
	_, err = file.WriteString(content.String())
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = place(file.Name())
	}
	if err != nil {
		return errors.Join(err, removeIfExists(file.Name()))
	}
	return syncDir(dir)
}

// tempSuffix is the suffix of a key file that is being written. Its name is
// that of the final file, a number, and this suffix.
const tempSuffix = ".new"

// staleAfter is the age at which an incomplete key file is abandoned.
const staleAfter = time.Minute

// removeStale removes key files that a crash left incomplete, because they
// contain keys that no backup and no rotation covers. It ignores errors, so
// that the gateway can start.
func removeStale(path string) {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		path = file
	}
	dir, base := filepath.Split(path)
	entries, _ := os.ReadDir(filepath.Clean(dir))
	for _, entry := range entries {
		number, hasPrefix := strings.CutPrefix(entry.Name(), base+".")
		number, hasSuffix := strings.CutSuffix(number, tempSuffix)
		if !hasPrefix || !hasSuffix || number == "" || strings.Trim(number, "0123456789") != "" {
			continue
		}
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) >= staleAfter {
			_ = os.Remove(filepath.Join(dir, entry.Name()))
		}
	}
}

func removeIfExists(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncDir makes the names in a directory durable. Windows does not need it.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
