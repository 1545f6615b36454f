package badger

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestModuleIsRegistered(t *testing.T) {
	t.Parallel()
	info, err := caddy.GetModule("modelgate.storage.badger")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := info.New().(storage.Opener); !ok {
		t.Errorf("the module is a %T, which opens no engine", info.New())
	}
}

func TestCaddyfileBecomesJSON(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"badger":                    `{}`,
		"badger /var/lib/modelgate": `{"path":"/var/lib/modelgate"}`,
		"badger {env.STORE}":        `{"path":"{env.STORE}"}`,
		"badger {\nmemory small\n}": `{"memory":"small"}`,
		"badger /store {\nmemory large\nmin_free 2GiB\n}": `{"path":"/store","memory":"large","min_free":2147483648}`,
		"badger /store {\n# nothing\nmin_free 512 MiB\n}": ``,
		"badger /store {\nmin_free 536870912\n}":          `{"path":"/store","min_free":536870912}`,
		"badger /store more":                              ``,
		"badger \"\"":                                     ``,
		"badger {\nmemory\n}":                             ``,
		"badger {\nmemory small large\n}":                 ``,
		"badger {\nmemory huge\n}":                        ``,
		"badger {\nmemory small\nmemory small\n}":         ``,
		"badger {\nmin_free\n}":                           ``,
		"badger {\nmin_free lots\n}":                      ``,
		"badger {\nmin_free 0\n}":                         ``,
		"badger {\nmin_free -1\n}":                        ``,
		"badger {\nmin_free 16EiB\n}":                     ``,
		"badger {\nmin_free 1GiB\nmin_free 1GiB\n}":       ``,
		"badger {\nsync off\n}":                           ``,
		"badger {\nmemory small {\nmore\n}\n}":            ``,
	} {
		tokens, err := caddyfile.Tokenize([]byte(input), "Caddyfile")
		if err != nil {
			t.Fatal(err)
		}
		var b Badger
		err = b.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens))
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "Caddyfile:") {
				t.Errorf("%q: got error %v, want one with file and line", input, err)
			}
			continue
		}
		got, jsonErr := json.Marshal(&b)
		if err := errors.Join(err, jsonErr); err != nil {
			t.Errorf("%q: %v", input, err)
		} else if string(got) != want {
			t.Errorf("%q: got %s, want %s", input, got, want)
		}
	}
}

// FuzzCaddyfile checks that every accepted Caddyfile is a valid configuration,
// except for the rule that combines two options.
func FuzzCaddyfile(f *testing.F) {
	f.Add("badger /store {\nmemory large\nmin_free 2GiB\n}")
	f.Add("badger {\nmemory")
	f.Add("badger {env.X")
	f.Fuzz(func(t *testing.T, input string) {
		tokens, err := caddyfile.Tokenize([]byte(input), "Caddyfile")
		if err != nil {
			t.Skip()
		}
		var b Badger
		if err := b.UnmarshalCaddyfile(caddyfile.NewDispenser(tokens)); err != nil {
			return
		}
		if _, ok := sizings[b.Memory]; b.Memory != "" && !ok || b.MinFree < 0 {
			t.Errorf("%q was accepted as %+v", input, b)
		}
	})
}

// provision calls Provision and Validate, as Caddy does.
func provision(t *testing.T, b *Badger) error {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
	t.Cleanup(cancel)
	if err := b.Provision(ctx); err != nil {
		return err
	}
	return b.Validate()
}

func TestProvisionCreatesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("STORE", "given")
	t.Setenv("EMPTY", "")

	var standard Badger
	if err := provision(t, &standard); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := "badger:" + filepath.Join(real, "caddy", "modelgate", "store"); standard.Key() != want {
		t.Errorf("key %s, want %s", standard.Key(), want)
	}

	named := Badger{Path: filepath.Join(dir, "{env.STORE}")}
	if err := provision(t, &named); err != nil {
		t.Fatal(err)
	}
	if want := "badger:" + filepath.Join(real, "given"); named.Key() != want {
		t.Errorf("key %s, want %s", named.Key(), want)
	}
	for _, path := range []string{"{env.EMPTY}", "{no.such.placeholder}"} {
		if err := provision(t, &Badger{Path: path}); err == nil {
			t.Errorf("the path %s was accepted", path)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("Provision created %v (%v)", entries, err)
	}
}

func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, b := range map[string]*Badger{
		"an unknown size":       {Path: dir, Memory: "huge"},
		"too little free space": {Path: dir, Memory: "large", MinFree: 320<<20 - 1},
		"a negative number":     {Path: dir, MinFree: -1},
		"a path below a file":   {Path: filepath.Join(os.Args[0], "store")},
	} {
		if err := provision(t, b); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if err := provision(t, &Badger{Path: dir, Memory: "large", MinFree: 320 << 20}); err != nil {
		t.Error(err)
	}
}

func TestOpenCreatesAPrivateLockedStore(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "new", "store")
	b := &Badger{Path: path, Memory: "small"}
	if err := provision(t, b); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before Open: %v", err)
	}
	b.MinFree = 1 // independent of the free space of this machine
	e, err := b.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, e, "key", []byte("value"))

	// The lock is on the directory, not on the process, so a second engine in
	// this process fails like another process.
	_, err = b.Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "in use by") || !strings.Contains(err.Error(), path) {
		t.Errorf("a second Open: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err = b.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if got := get(t, e, "key"); string(got) != "value" {
		t.Errorf("after a reopen: %q", got)
	}
}
