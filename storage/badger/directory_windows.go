package badger

import (
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sys/windows"
)

// lockFile is open, without sharing, as long as the lock is held.
const lockFile = "LOCK"

// lock is the exclusive right to a directory: a file that only one process can
// have open, as Badger's own tools do it, and that is gone with it.
type lock struct {
	file windows.Handle
}

// lockDirectory locks dir, or says that another process has it.
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

// closeToOthers does nothing: what Windows lets other users do with a file follows
// from the directory.
func closeToOthers(string) error { return nil }
