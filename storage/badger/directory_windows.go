package badger

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// lockFile is open, without sharing, as long as the lock is held.
const lockFile = "LOCK"

// lock is an exclusive lock on a directory, as Badger's own tools take it: a file
// that only one process can open. It ends with the process.
type lock struct {
	file windows.Handle
}

// lockDirectory locks dir. It returns an error if another process holds the lock.
func lockDirectory(dir string) (*lock, error) {
	path, err := windows.UTF16PtrFromString(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, err
	}
	file, err := windows.CreateFile(path, 0, 0, nil, windows.OPEN_ALWAYS,
		windows.FILE_ATTRIBUTE_TEMPORARY|windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
	if errors.Is(err, windows.ERROR_SHARING_VIOLATION) {
		return nil, errors.New("the directory is in use by another process")
	}
	if err != nil {
		return nil, fmt.Errorf("locking the directory: %w", err)
	}
	return &lock{file: file}, nil
}

func (l *lock) release() error { return windows.CloseHandle(l.file) }

// syncDirectory does nothing: Windows keeps names with the files.
func syncDirectory(string) error { return nil }

// makePrivate does nothing: on Windows a file inherits the access of other users
// from its directory.
func makePrivate(string) error { return nil }
