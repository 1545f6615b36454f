package badger

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/dgraph-io/badger/v4/table"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestRealPathOfMissingAndExistingDirectories(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place := filepath.Join(dir, "place")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(place, link); err != nil {
		t.Skip(err)
	}
	for _, path := range []string{
		filepath.Join(place, "a", "b"),
		filepath.Join(link, "a", "b"),
		filepath.Join(link, "a", "x", "..", "b") + string(filepath.Separator),
		filepath.Join(link, "..", "link", "a", "b"),
	} {
		for range 2 { // before it is created and after
			got, err := realPath(path)
			if want := filepath.Join(place, "a", "b"); err != nil || got != want {
				t.Errorf("%s is %s (%v), want %s", path, got, err, want)
			}
			if err := os.MkdirAll(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.RemoveAll(filepath.Join(place, "a")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheDirectoryIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes on this system")
	}
	given := filepath.Join(t.TempDir(), "given")
	if err := os.Mkdir(given, 0o755); err != nil {
		t.Fatal(err)
	}
	created := filepath.Join(t.TempDir(), "a", "created")
	for _, dir := range []string{given, created} {
		openTest(t, dir)
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o700 {
			t.Errorf("mode %o, want 700", mode)
		}
	}
}

// TestFilesArePrivate checks the modes of files. Badger creates most of them readable for all
// users, and tables at any time.
func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no modes on this system")
	}
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	checkModes := func(when string, names ...string) {
		t.Helper()
		for _, name := range names {
			info, err := os.Lstat(filepath.Join(c.dir, name))
			if errors.Is(err, os.ErrNotExist) {
				continue // a merged table
			}
			if err != nil {
				t.Fatal(err)
			}
			if mode := info.Mode().Perm(); mode != 0o600 {
				t.Errorf("%s: %s has mode %o, want 600", when, name, mode)
			}
		}
	}
	isTable := func(name string) bool { return filepath.Ext(name) == ".sst" }
	checkModes("a new store", namesIn(t, c.dir)...)

	put(t, e, "large", make([]byte, 2<<20)) // in the value log
	for n, tables := 0, []string(nil); len(tables) == 0; n++ {
		if n == 200 {
			t.Fatal("no table was created: the test is not effective")
		}
		for _, made := range e.db.Tables() {
			tables = append(tables, filepath.Base(table.NewFilename(made.ID, c.dir)))
		}
		put(t, e, fmt.Sprint(n), make([]byte, 256<<10))
		checkModes("during writes", tables...)
		checkModes("during writes", slices.DeleteFunc(namesIn(t, c.dir), isTable)...)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	names := namesIn(t, c.dir)
	checkModes("a closed store", names...)

	for _, name := range names {
		if err := os.Chmod(filepath.Join(c.dir, name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	openWith(t, c)
	checkModes("an opened store whose files were readable", names...)
}

// namesIn returns the names of the files in dir.
func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestAForeignDirectoryIsUnchanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(testConfig(dir)); err == nil {
		t.Fatal("a directory with other files became a store")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the directory has %v (%v), want only the other file", entries, err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode != 0o755 {
		t.Errorf("the mode became %o", mode)
	}
}

// TestEmptyLogsAfterAKill opens a store with an empty log. Without removeEmptyLogs,
// Badger's Open fails. The end of the test checks that this is still true;
// otherwise removeEmptyLogs can be deleted.
func TestEmptyLogsAfterAKill(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"00009" + memtableLog, "000009" + valueLog} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := testConfig(t.TempDir())
			e := openWith(t, c)
			put(t, e, "key", []byte("value"))
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			empty := filepath.Join(c.dir, name)
			if err := os.WriteFile(empty, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			e = openWith(t, c)
			if got := get(t, e, "key"); string(got) != "value" {
				t.Errorf("key: %q", got)
			}
			put(t, e, "key", []byte("changed"))
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(empty, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := badgerOpen(c)
			if err == nil {
				db.Close()
				t.Error("Badger opens with an empty log now")
			}
		})
	}
}

// TestNamesOfNewLogsAreSynced follows the numbers of the log files while small
// memtables fill. If one is missed, its name is not durable.
func TestNamesOfNewLogsAreSynced(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	first := e.files.memtable
	for n := range 40 {
		err := e.Update(t.Context(), func(tx storage.Txn) error {
			for i := range 10 {
				if err := tx.Set(fmt.Appendf(nil, "%d/%d", n, i), make([]byte, 20<<10), never); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		now, err := watchFiles(c.dir)
		if err != nil {
			t.Fatal(err)
		}
		if now.memtable != e.files.memtable || now.value != e.files.value {
			t.Fatalf("watching %+v, the directory has %+v", *e.files, *now)
		}
	}
	if e.files.memtable == first {
		t.Error("no memtable was filled: the test is not effective")
	}
}

func TestNewLogsAreSyncedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := watchFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"00001.mem", "00002.mem", "000001.vlog", "00004.mem"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.syncNew(); err != nil {
		t.Fatal(err)
	}
	if f.memtable != 2 || f.value != 1 {
		t.Errorf("got %+v, want the logs 2 and 1", *f)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := f.syncNew(); err != nil {
		t.Errorf("without a new log: %v", err)
	}
	if _, err := watchFiles(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
