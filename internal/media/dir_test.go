package media

import (
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
	"testing"
)

func TestADirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes on this system")
	}
	given := filepath.Join(t.TempDir(), "given")
	if err := os.Mkdir(given, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{given, filepath.Join(t.TempDir(), "a", "new")} {
		w := newFixture(t, Dir(path, 1))
		o := newOrigin(t, film(1000))
		name, _ := parts(t, w.allow(o).keep(keeping("task_a", o.URL))[0])
		for path, want := range map[string]fs.FileMode{
			path: 0o700, filepath.Join(path, name[:1]): 0o700, filepath.Join(path, name[:1], name[1:2]): 0o700,
			filepath.Join(path, name[:1], name[1:2], name): 0o600,
		} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("%s has mode %v, %v, want %v", path, info.Mode(), err, want)
			}
		}
		if err := w.Serve(w.config); err != nil {
			t.Errorf("Serve with the same configuration: %v", err)
		}
	}
}

func TestAForeignDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	for _, foreign := range []string{"index.html", "ab", "A", "0", ".git"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, foreign), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		err := Dir(dir, 1).Prepare()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", foreign)) {
			t.Errorf("with %s: %v", foreign, err)
		}
		if info, _ := os.Stat(dir); runtime.GOOS != "windows" && info.Mode().Perm() != 0o755 {
			t.Errorf("Prepare changed the mode of a refused directory to %v", info.Mode())
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Dir(dir, 1).Prepare(); err != nil {
		t.Errorf("a directory with only lost+found: %v", err)
	}
}

// TestFreeSpaceIsReserved checks that at least a gibibyte, or a fiftieth of a large disk, stays
// free.
func TestFreeSpaceIsReserved(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	for _, row := range []struct {
		min              int64
		free, disk, need uint64
		want             bool
	}{
		{0, gib, 10 * gib, 0, true},
		{0, gib, 10 * gib, 1, false},
		{0, gib - 1, 10 * gib, 0, false},
		{0, 3 * gib, 100 * gib, gib, true},
		{0, 3 * gib, 100 * gib, gib + 1, false},
		{2 * gib, 3 * gib, 10 * gib, gib + 1, false},
		{2 * gib, 3 * gib, 1000 * gib, gib, true},
		{0, 1, 1, 1 << 62, false},
	} {
		d := Dir("x", row.min).(*directory)
		d.space = func(string) (uint64, uint64, error) { return row.free, row.disk, nil }
		if err := d.CheckSpace(int64(row.need)); (err == nil) != row.want || err != nil && !errors.Is(err, errNoSpace) {
			t.Errorf("%+v: %v", row, err)
		}
	}
	d := Dir("x", 0).(*directory)
	d.space = func(string) (uint64, uint64, error) { return 1 << 60, 1 << 60, errors.New("no such device") }
	if err := d.CheckSpace(0); !errors.Is(err, errNoSpace) {
		t.Errorf("the free space is unknown: %v", err)
	}
	if free, size, err := spaceAt(t.TempDir()); err != nil || free == 0 || free > size {
		t.Errorf("free space of this machine: %d of %d, %v", free, size, err)
	}
}

// TestADiskThatFillsDuringACopy has the same result as a full disk.
func TestADiskThatFillsDuringACopy(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("no /dev/full")
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	d := &fileDraft{directory: Dir(t.TempDir(), 1).(*directory), file: full}
	defer d.Close()
	if _, err := d.Write([]byte("x")); !errors.Is(err, errNoSpace) || !errors.Is(err, syscall.ENOSPC) || !discards(err) {
		t.Errorf("%v", err)
	}
}

// TestADraftContinuesFromItsDurableLength checks that bytes after the durable
// length are discarded.
func TestADraftContinuesFromItsDurableLength(t *testing.T) {
	t.Parallel()
	place, name := Dir(t.TempDir(), 1), newName()
	for _, step := range []struct {
		from  int64
		write string
		size  int64
	}{{0, "abcdefgh", 0}, {5, "XY", 0}, {7, "", 7}} {
		draft, err := place.Draft(t.Context(), name, step.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Write([]byte(step.write)); err != nil {
			t.Fatal(err)
		}
		if n, err := draft.Sync(); err != nil || n != step.from+int64(len(step.write)) {
			t.Errorf("%d bytes are durable: %v", n, err)
		}
		if step.size > 0 {
			err = draft.Commit()
		}
		if err := errors.Join(err, draft.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if size, err := place.Size(t.Context(), name); err != nil || size != 7 {
		t.Errorf("the file has %d bytes, want 7: %v", size, err)
	}
	file, err := place.Open(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if content, err := io.ReadAll(file); err != nil || string(content) != "abcdeXY" {
		t.Errorf("the file contains %q: %v", content, err)
	}
	if _, err := place.Draft(t.Context(), name, 1); !errors.Is(err, errNoDraft) {
		t.Errorf("a missing draft: %v", err)
	}
}

// TestAnUnmountedDiskLosesNothing checks that files on a disk that is not
// mounted do not count as lost.
func TestAnUnmountedDiskLosesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "disk")
	w := newFixture(t, Dir(path, 1))
	o := newOrigin(t, film(1000))
	link := w.allow(o).keep(keeping("task_a", o.URL))[0]
	name, _ := parts(t, link)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Open(t.Context(), name); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("%v", err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	w.checkContent(link, o.content)
}

// TestListsAreCompleteAndOrdered checks that List returns all files for any
// limit, and no foreign files.
func TestListsAreCompleteAndOrdered(t *testing.T) {
	forEachPlace(t, func(t *testing.T, w *fixture) {
		var want []string
		for i := range 40 {
			name := newName()
			want = append(want, name)
			draft, err := w.place.Draft(t.Context(), name, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := draft.Write(film(100 + i)); err != nil {
				t.Fatal(err)
			}
			if err := draft.Commit(); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(want)
		if d, ok := w.place.(*directory); ok {
			misplaced := nameEncoding.EncodeToString(make([]byte, nameBytes)) // in the wrong folder
			for _, foreign := range []string{"notes.txt", misplaced, want[39] + "x", want[39] + ".tmp"} {
				if err := os.WriteFile(filepath.Join(d.folder(want[39]), foreign), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, limit := range []int{1, 7, 100} {
			var got []string
			for after, rounds := "", 0; ; rounds++ {
				list, next, err := w.place.List(t.Context(), after, limit)
				if err != nil || rounds > 100 {
					t.Fatal(err, rounds)
				}
				for _, entry := range list {
					got = append(got, entry.Name)
				}
				if after = next; next == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("limit %d: %d names, want %d", limit, len(got), len(want))
			}
		}
	})
}
