package media

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/dustin/go-humanize"
)

// draftSuffix ends the path of a draft.
const draftSuffix = ".part"

// directory is a [Place] in the file system: <path>/<a>/<b>/<name>, where a and
// b are the first characters of the name. So with a million files, a folder has
// about a thousand.
type directory struct {
	path  string
	min   uint64 // bytes of the disk that must stay free; 0: see minimum
	space func(path string) (free, size uint64, err error)
}

// Dir returns the place in the directory at path, which leaves at least minFree bytes of the
// disk free. Zero selects 1 GiB or a fiftieth of the disk, whichever is more. A store on the
// same disk needs space even if copies do not fit.
func Dir(path string, minFree int64) Place {
	return &directory{path: path, min: uint64(max(0, minFree)), space: spaceAt}
}

func (d *directory) String() string { return "the directory " + d.path }

const leastFree = 1 << 30

// minimum returns how much of a disk of this size must stay free.
func (d *directory) minimum(size uint64) uint64 {
	return cmp.Or(d.min, max(leastFree, size/50))
}

// Prepare creates the directory and removes the access of other users. It
// refuses a directory that contains other files, because its path is probably
// wrong.
func (d *directory) Prepare() error {
	if err := makeDirectory(d.path); err != nil {
		return err
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !isFolder(name) && name != "lost+found" {
			return fmt.Errorf("the directory contains other files, such as %q; use a new or empty directory", name)
		}
	}
	info, err := os.Stat(d.path)
	if err != nil {
		return err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return os.Chmod(d.path, 0o700) //nolint:gosec // a directory
	}
	return nil
}

// isFolder reports whether a name is that of a folder of the place: one
// character of a file's name.
func isFolder(name string) bool {
	return len(name) == 1 && IsName(strings.Repeat(name, nameDigits))
}

// makeDirectory creates a directory and its missing parents. A name is durable
// after the directory that contains it has been synced.
func makeDirectory(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeDirectory(filepath.Dir(path)); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDirectory(filepath.Dir(path))
}

// CheckSpace calls the operating system, which takes about a microsecond.
func (d *directory) CheckSpace(size int64) error {
	free, all, err := d.space(d.path)
	if err != nil {
		return fmt.Errorf("%w: it cannot be determined: %w", errNoSpace, err)
	}
	if reserve := d.minimum(all); free < reserve || free-reserve < uint64(size) {
		return fmt.Errorf("%w: %s on the disk of %s; needed: %s, and %s must stay free", errNoSpace,
			humanize.IBytes(free), d.path, humanize.IBytes(uint64(size)), humanize.IBytes(reserve))
	}
	return nil
}

func (d *directory) folder(name string) string { return filepath.Join(d.path, name[:1], name[1:2]) }
func (d *directory) file(name string) string   { return filepath.Join(d.folder(name), name) }

func (d *directory) Draft(_ context.Context, name string, from int64) (Draft, error) {
	if err := makeDirectory(d.folder(name)); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(d.file(name)+draftSuffix, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	draft := &fileDraft{directory: d, name: name, file: file}
	if err := draft.cut(from); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return draft, nil
}

func (d *directory) Size(_ context.Context, name string) (int64, error) {
	info, err := os.Lstat(d.file(name))
	if err != nil {
		return 0, d.absent(err)
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a regular file", d.file(name))
	}
	return info.Size(), nil
}

func (d *directory) Open(_ context.Context, name string) (io.ReadSeekCloser, error) {
	file, err := os.Open(d.file(name))
	if err != nil {
		return nil, d.absent(err)
	}
	return file, nil
}

// absent returns [fs.ErrNotExist] for a missing file. If the whole place is
// missing, as on a disk that is not mounted, the state of the file is unknown.
func (d *directory) absent(err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, missing := os.Stat(d.path); missing != nil {
		return fmt.Errorf("the directory of the files is missing: %s", missing)
	}
	return fs.ErrNotExist
}

func (d *directory) Remove(_ context.Context, name string) error {
	for _, path := range []string{d.file(name), d.file(name) + draftSuffix} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// List walks the folders in their order, which is that of the names.
func (d *directory) List(ctx context.Context, after string, limit int) (list []Entry, next string, err error) {
	upper, err := os.ReadDir(d.path)
	if err != nil {
		return nil, "", err
	}
	for _, a := range upper {
		if !isFolder(a.Name()) || a.Name() < after[:min(1, len(after))] {
			continue
		}
		lower, err := os.ReadDir(filepath.Join(d.path, a.Name()))
		if err != nil {
			return nil, "", err
		}
		for _, b := range lower {
			folder := a.Name() + b.Name()
			if !isFolder(b.Name()) || folder < after[:min(2, len(after))] {
				continue
			}
			if list, err = d.listFolder(list, filepath.Join(d.path, a.Name(), b.Name()), after); err != nil {
				return nil, "", err
			}
			if len(list) >= limit {
				return list, list[len(list)-1].Name, nil
			}
			if ctx.Err() != nil {
				return nil, "", ctx.Err()
			}
		}
	}
	return list, "", nil
}

// listFolder adds the whole content of one folder, which is about a thousand
// files.
func (d *directory) listFolder(list []Entry, folder, after string) ([]Entry, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := strings.TrimSuffix(entry.Name(), draftSuffix)
		if !IsName(name) || name <= after || !entry.Type().IsRegular() || d.folder(name) != folder {
			continue
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // another goroutine has removed it
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Entry{Name: name, Modified: info.ModTime()})
	}
	return list, nil
}

// fileDraft is a draft beside its future file.
type fileDraft struct {
	directory *directory
	name      string
	file      *os.File
	closed    bool
}

// cut truncates the draft to from bytes.
func (f *fileDraft) cut(from int64) error {
	info, err := f.file.Stat()
	if err != nil {
		return err
	}
	if info.Size() < from {
		return errNoDraft
	}
	if err := f.file.Truncate(from); err != nil {
		return err
	}
	_, err = f.file.Seek(from, io.SeekStart)
	return err
}

func (f *fileDraft) Write(p []byte) (int, error) {
	if err := f.directory.CheckSpace(int64(len(p))); err != nil {
		return 0, err
	}
	n, err := f.file.Write(p)
	if slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT}, func(e error) bool { return errors.Is(err, e) }) {
		err = fmt.Errorf("%w: %w", errNoSpace, err)
	}
	return n, err
}

func (f *fileDraft) Sync() (int64, error) {
	if err := f.file.Sync(); err != nil {
		return 0, err
	}
	if err := syncDirectory(f.directory.folder(f.name)); err != nil {
		return 0, err
	}
	return f.file.Seek(0, io.SeekCurrent)
}

func (f *fileDraft) Commit() error {
	err := f.file.Sync()
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	path := f.directory.file(f.name)
	if err := os.Rename(path+draftSuffix, path); err != nil {
		return err
	}
	return syncDirectory(f.directory.folder(f.name))
}

func (f *fileDraft) Close() error {
	if f.closed {
		return nil
	}
	f.closed = true
	return f.file.Close()
}

// FreeSpace returns the free bytes on the disk of a directory, which need not
// exist yet. reserve is how many of them must stay free by default.
func FreeSpace(path string) (free, reserve uint64, err error) {
	for {
		free, size, err := spaceAt(path)
		if above := filepath.Dir(path); errors.Is(err, fs.ErrNotExist) && above != path {
			path = above
			continue
		}
		return free, (&directory{}).minimum(size), err
	}
}
