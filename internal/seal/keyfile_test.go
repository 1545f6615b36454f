package seal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func newStore(t *testing.T) *storage.Store {
	t.Helper()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// openKeyFile opens the key file as the start of the gateway does.
func openKeyFile(t *testing.T, store *storage.Store, path string) *Keyring {
	t.Helper()
	k, err := FromFile(t.Context(), store, path)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Check(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	return k
}

// markUsed registers that the newest key encrypts something.
func markUsed(t *testing.T, k *Keyring, store *storage.Store) {
	t.Helper()
	for range 2 { // the second changes nothing
		if err := k.Mark(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAStoreWithoutSecretsAcceptsAnyKey restores a backup without secrets and without its key
// file.
func TestAStoreWithoutSecretsAcceptsAnyKey(t *testing.T) {
	t.Parallel()
	store, path := newStore(t), filepath.Join(t.TempDir(), "modelgate.key")
	k := openKeyFile(t, store, path)
	if err := k.Renew(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if sealed, err := Sealed(t.Context(), store); err != nil || sealed {
		t.Fatal(sealed, err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	markUsed(t, openKeyFile(t, store, path), store)
	if sealed, err := Sealed(t.Context(), store); err != nil || !sealed {
		t.Error(sealed, err)
	}
	if err := k.Mark(t.Context(), store); !errors.Is(err, ErrWrongKey) {
		t.Errorf("marked with a key that lacks the first: %v", err)
	}
}

func TestAKeyFileIsCreatedOnce(t *testing.T) {
	t.Parallel()
	store, path := newStore(t), filepath.Join(t.TempDir(), "created", "modelgate.key")
	first := openKeyFile(t, store, path)
	envelope := sealed(t, first, "p", "id", "x")
	info, err := os.Stat(path)
	if err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	second := openKeyFile(t, store, path)
	if _, err := second.For("p").Open("id", envelope); err != nil || second.Path() != path {
		t.Errorf("after a restart: %v, %q", err, second.Path())
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(left) != 1 {
		t.Errorf("the directory of the key file has %q", left)
	}
}

func TestConcurrentCreationGivesOneKey(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "modelgate.key")
	keyrings := make([]*Keyring, 8)
	var all sync.WaitGroup
	for i := range keyrings {
		store := newStore(t)
		all.Go(func() { keyrings[i], _ = FromFile(t.Context(), store, path) })
	}
	all.Wait()
	for i, k := range keyrings {
		if k == nil {
			t.Fatalf("keyring %d has no key", i)
		}
		if _, err := k.For("p").Open("id", sealed(t, keyrings[0], "p", "id", "x")); err != nil {
			t.Errorf("keyring %d has another key: %v", i, err)
		}
	}
}

func TestASealedStoreNeedsItsKeyFile(t *testing.T) {
	t.Parallel()
	store, path := newStore(t), filepath.Join(t.TempDir(), "modelgate.key")
	markUsed(t, openKeyFile(t, store, path), store)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	_, err := FromFile(t.Context(), store, path)
	if err == nil || !strings.Contains(err.Error(), path) {
		t.Fatalf("%v, want an error with the path of the file", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a new key file was created for a sealed store")
	}
}

func TestAWrongKeyStopsTheStart(t *testing.T) {
	t.Parallel()
	store := newStore(t)
	markUsed(t, keyringOf(t, key(1)), store)
	for what, c := range map[string]struct {
		keyring *Keyring
		want    error
	}{
		"the same": {keyringOf(t, key(1)), nil},
		"another":  {keyringOf(t, key(2)), ErrWrongKey},
		"none":     {nil, ErrWrongKey},
		"others":   {keyringOf(t, key(2), key(3)), ErrWrongKey},
	} {
		if err := c.keyring.Check(t.Context(), store); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
	}
	// A new key precedes the old one and may have encrypted something: both are
	// required until everything is encrypted again.
	both := keyringOf(t, key(4), key(1))
	for range 2 {
		if err := both.Check(t.Context(), store); err != nil {
			t.Fatal(err)
		}
	}
	for _, alone := range []string{key(1), key(4)} {
		if err := keyringOf(t, alone).Check(t.Context(), store); !errors.Is(err, ErrWrongKey) {
			t.Errorf("with one of two keys: %v", err)
		}
	}
	markUsed(t, keyringOf(t, key(9), key(4), key(1)), store) // as a running process does after a rotation
	if err := keyringOf(t, key(9), key(1)).Check(t.Context(), store); !errors.Is(err, ErrWrongKey) {
		t.Errorf("without one of three keys: %v", err)
	}
	both = keyringOf(t, key(4), key(1), key(9))
	if err := both.Renew(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if err := keyringOf(t, key(4)).Check(t.Context(), store); err != nil {
		t.Errorf("the new key alone, after the end of the rotation: %v", err)
	}
	if err := keyringOf(t, key(1)).Check(t.Context(), store); !errors.Is(err, ErrWrongKey) {
		t.Errorf("the old key alone, after the end of the rotation: %v", err)
	}
}

func TestAReadableKeyFileIsRefused(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"group": 0o640, "world": 0o604, "writable": 0o620, "run": 0o611} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(key(1)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := FromFile(t.Context(), newStore(t), path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("mode %#o: %v", mode, err)
		}
	}
	if _, err := FromFile(t.Context(), newStore(t), dir); err == nil {
		t.Error("a directory is accepted as a key file")
	}
}

func TestAKeyFileHasKeysAndComments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for what, c := range map[string]struct {
		content string
		keys    int
	}{
		"one":      {key(1), 1},
		"two":      {"# new\n" + key(1) + "\n\n  # old\n" + key(2) + "\r\n", 2},
		"nothing":  {"", 0},
		"comments": {"# " + key(1), 0},
		"invalid":  {key(1) + "\nnot a key\n", 0},
	} {
		path := filepath.Join(dir, what)
		if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := FromFile(t.Context(), newStore(t), path)
		if (err == nil) != (c.keys > 0) || k.Count() != c.keys {
			t.Errorf("%s: %d keys, %v; want %d", what, k.Count(), err, c.keys)
		}
		if content, _ := os.ReadFile(path); string(content) != c.content {
			t.Errorf("%s: the file was changed", what)
		}
	}
}

func TestARotationKeepsTheOldKeyUntilItIsDropped(t *testing.T) {
	t.Parallel()
	store, path := newStore(t), filepath.Join(t.TempDir(), "modelgate.key")
	k := openKeyFile(t, store, path)
	markUsed(t, k, store)
	before := sealed(t, k, "p", "id", "x")
	if err := k.Rotate(); err != nil {
		t.Fatal(err)
	}
	after := sealed(t, k, "p", "id", "x")
	// After a crash here, the next start has both keys.
	again := openKeyFile(t, store, path)
	for _, r := range []*Keyring{k, again} {
		for what, envelope := range map[string][]byte{"before": before, "after": after} {
			if _, err := r.For("p").Open("id", envelope); err != nil || r.Count() != 2 {
				t.Errorf("sealed %s the rotation, %d keys: %v", what, r.Count(), err)
			}
		}
	}
	if err := k.Renew(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if err := k.DropOld(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*Keyring{k, openKeyFile(t, store, path)} {
		if _, err := r.For("p").Open("id", after); err != nil || r.Count() != 1 {
			t.Errorf("the new key, %d keys: %v", r.Count(), err)
		}
		if _, err := r.For("p").Open("id", before); !errors.Is(err, ErrNoKey) {
			t.Errorf("the old key is not dropped: %v", err)
		}
	}
	if runtime.GOOS != "windows" {
		if err := CheckFile(path); err != nil {
			t.Error(err)
		}
	}
	for _, fixed := range []*Keyring{keyringOf(t, key(1)), Random()} {
		if err := errors.Join(fixed.Rotate(), fixed.DropOld()); !errors.Is(err, ErrConfigured) {
			t.Errorf("keys without a file were rotated: %v", err)
		}
	}
}

func TestAFailedRotationChangesNothing(t *testing.T) {
	t.Parallel()
	store, path := newStore(t), filepath.Join(t.TempDir(), "dir", "modelgate.key")
	k := openKeyFile(t, store, path)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	if err := k.Rotate(); err == nil || k.Count() != 1 {
		t.Errorf("%d keys, %v", k.Count(), err)
	}
}

// TestARotationFollowsALink rotates a key file that is reached by links. An
// operator may keep the file on another disk.
func TestARotationFollowsALink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link := filepath.Join(dir, "vault", "gate.key"), filepath.Join(dir, "modelgate.key")
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(key(1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	between := filepath.Join(dir, "between")
	for from, to := range map[string]string{between: file, link: between} {
		if err := os.Symlink(to, from); err != nil {
			t.Skip(err) // needs privileges on Windows
		}
	}
	store := newStore(t)
	k := openKeyFile(t, store, link)
	if err := k.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := k.DropOld(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, between} {
		if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("%s is no longer a link: %v, %v", path, info.Mode(), err)
		}
	}
	envelope := sealed(t, k, "p", "id", "x")
	for _, path := range []string{file, link} {
		if _, err := openKeyFile(t, store, path).For("p").Open("id", envelope); err != nil {
			t.Errorf("%s does not have the new key: %v", path, err)
		}
	}
	if k.Path() != link {
		t.Errorf("the path is %s", k.Path())
	}
	for _, at := range []string{dir, filepath.Dir(file)} {
		if left, _ := filepath.Glob(filepath.Join(at, "*"+tempSuffix)); len(left) != 0 {
			t.Errorf("%q is left", left)
		}
	}
}

func TestAStartRemovesOnlyIncompleteKeyFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, link := filepath.Join(dir, "modelgate.key"), filepath.Join(t.TempDir(), "link.key")
	k := openKeyFile(t, newStore(t), path)
	// A crash during a rotation: the new file exists, but was not moved to its
	// place.
	err := writeFile(path, k.all(), func(string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(path + ".*")
	if len(left) != 1 {
		t.Fatalf("%q", left)
	}
	others := []string{
		path, path + ".new", path + ".old.new", path + ".1.new.bak", path + ".12", path + ".-1.new", filepath.Join(dir, "other.key.1.new"),
		filepath.Join(dir, "xmodelgate.key.1.new"),
	}
	long := time.Now().Add(-time.Hour)
	for _, other := range others[1:] {
		if err := os.WriteFile(other, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path+".7.new", 0o700); err != nil {
		t.Fatal(err)
	}
	others = append(others, path+".7.new")
	age := func(paths ...string) {
		for _, path := range paths {
			if err := os.Chtimes(path, long, long); err != nil {
				t.Fatal(err)
			}
		}
	}
	age(others...)
	exists := func(path string) bool {
		_, err := os.Lstat(path)
		return err == nil
	}
	openKeyFile(t, newStore(t), path)
	if !exists(left[0]) {
		t.Error("a file was removed that another process may be writing")
	}
	age(left...)
	openKeyFile(t, newStore(t), path)
	if exists(left[0]) {
		t.Error("an incomplete key file was not removed")
	}
	for _, other := range others {
		if !exists(other) {
			t.Errorf("%s was removed", other)
		}
	}
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(left[0], nil, 0o600); err != nil {
		t.Fatal(err)
	}
	age(left...)
	openKeyFile(t, newStore(t), link)
	if exists(left[0]) {
		t.Error("an incomplete key file beside the target of a link was not removed")
	}
}

func TestAReloadReplacesTheKeysOfTheKeyring(t *testing.T) {
	t.Parallel()
	store, k := newStore(t), keyringOf(t, key(1))
	markUsed(t, k, store)
	if err := k.Replace(t.Context(), store, keyringOf(t, key(2))); !errors.Is(err, ErrWrongKey) || k.Count() != 1 {
		t.Errorf("a wrong key was accepted: %d, %v", k.Count(), err)
	}
	box := k.For("p")
	before, _ := box.Seal("id", []byte("x"))
	if err := k.Replace(t.Context(), store, keyringOf(t, key(2), key(1))); err != nil {
		t.Fatal(err)
	}
	after, _ := box.Seal("id", []byte("x"))
	if _, err := box.Open("id", before); err != nil {
		t.Error(err)
	}
	if _, err := keyringOf(t, key(2)).For("p").Open("id", after); err != nil {
		t.Errorf("the box still seals with the old key: %v", err)
	}
}
