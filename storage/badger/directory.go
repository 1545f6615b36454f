package badger

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
)

// The names of Badger's log files: the log of a memtable, and the value log.
const (
	memtableLog = ".mem"
	valueLog    = ".vlog"
)

// realPath returns the absolute path without symbolic links, even if the end of
// it does not exist yet.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	missing := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, missing), nil
		}
		parent := filepath.Dir(path)
		if !errors.Is(err, fs.ErrNotExist) || parent == path {
			return "", err
		}
		missing = filepath.Join(filepath.Base(path), missing)
		path = parent
	}
}

// prepareDirectory creates dir if necessary and removes the access of other
// users. It refuses a directory with files that do not belong to a store,
// because its name was probably a mistake.
func prepareDirectory(dir string) error {
	if err := makeDirectory(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 && !holdsStore(entries) {
		return errors.New("the directory has other files; name a new or an empty one")
	}
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// makeDirectory creates dir and its missing parents. A name is durable after
// the directory that contains it has been synced.
func makeDirectory(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDirectory(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(filepath.Dir(dir))
}

// holdsStore reports whether a directory belongs to Badger: the first file that
// Badger creates is its manifest or the draft of it.
func holdsStore(entries []fs.DirEntry) bool {
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "MANIFEST") || entry.Name() == lockFile {
			return true
		}
	}
	return false
}

// removeEmptyLogs removes log files of length zero, which a process leaves
// behind if it is killed between creating a file and setting its size. Badger
// refuses to open with them. The directory must be locked, because a running
// engine may be at that point.
func removeEmptyLogs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		ext := filepath.Ext(entry.Name())
		if ext != memtableLog && ext != valueLog {
			continue
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if info.Size() > 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// files makes the names of new log files durable. Badger syncs the content of
// log files but not their directory. A file without a name is lost with all
// data that was acknowledged in it. Log files are numbered, so a new one is
// found by its name.
//
// It also removes the access of other users to new files, including tables.
// Badger creates tables at any time, but names each in its manifest, which
// becomes longer.
type files struct {
	dir      string
	memtable int // number of the log in use
	value    int
	manifest int64 // bytes
}

// watchFiles syncs the directory as it is and returns a files that detects
// later changes.
func watchFiles(dir string) (*files, error) {
	f := &files{dir: dir}
	f.noteManifest() // before its tables are listed
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		var n int
		switch filepath.Ext(entry.Name()) {
		case memtableLog:
			if _, err := fmt.Sscanf(entry.Name(), "%d"+memtableLog, &n); err == nil {
				f.memtable = max(f.memtable, n)
			}
		case valueLog:
			if _, err := fmt.Sscanf(entry.Name(), "%d"+valueLog, &n); err == nil {
				f.value = max(f.value, n)
			}
		}
	}
	return f, f.secure()
}

// syncNew syncs the directory if there is a new file. It must be called after
// each transaction, before the next one begins.
func (f *files) syncNew() error {
	found := f.noteManifest()
	for f.exists("%05d"+memtableLog, f.memtable+1) {
		f.memtable++
		found = true
	}
	for f.exists("%06d"+valueLog, f.value+1) {
		f.value++
		found = true
	}
	if !found {
		return nil
	}
	return f.secure()
}

// secure removes the access of other users to the existing files and makes
// their names durable.
func (f *files) secure() error {
	if err := makePrivate(f.dir); err != nil {
		return err
	}
	return syncDirectory(f.dir)
}

// noteManifest reports whether the manifest has changed since the last call.
func (f *files) noteManifest() (changed bool) {
	info, err := os.Lstat(filepath.Join(f.dir, badger.ManifestFilename))
	if err != nil || info.Size() == f.manifest {
		return false
	}
	f.manifest = info.Size()
	return true
}

func (f *files) exists(name string, n int) bool {
	_, err := os.Lstat(filepath.Join(f.dir, fmt.Sprintf(name, n)))
	return err == nil
}
