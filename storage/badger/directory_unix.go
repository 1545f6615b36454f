//go:build unix

package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// lockFile contains the process id of the lock's owner, for error messages.
const lockFile = "LOCK"

// lock is an exclusive lock on a directory, as Badger's own tools take it. It
// ends with the process.
type lock struct {
	dir *os.File
}

// lockDirectory locks dir. Its error names the process that holds the lock.
func lockDirectory(dir string) (*lock, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking the directory: %w", err)
		}
		holder, _ := os.ReadFile(filepath.Join(dir, lockFile))
		if pid := strings.TrimSpace(string(holder)); pid != "" {
			return nil, fmt.Errorf("the directory is in use by process %s", pid)
		}
		return nil, errors.New("the directory is in use by another process")
	}
	pid := strconv.Itoa(os.Getpid()) + "\n"
	if err := os.WriteFile(filepath.Join(dir, lockFile), []byte(pid), 0o600); err != nil {
		f.Close()
		return nil, err
	}
	return &lock{dir: f}, nil
}

func (l *lock) release() error {
	return errors.Join(os.Remove(filepath.Join(l.dir.Name(), lockFile)), l.dir.Close())
}

// syncDirectory makes the names in dir durable.
func syncDirectory(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// makePrivate removes the access of other users to the files in dir. Badger
// creates most of them with mode 0644, which cannot be configured. A file that
// disappears meanwhile was a table that has been merged.
func makePrivate(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(filepath.Join(dir, entry.Name()), 0o600)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
