package badger

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestLargeValues writes values to the value log. They are durable, and their space is
// freed after they are overwritten.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	random := rand.NewChaCha8([32]byte{1})
	values := make(map[string][]byte)
	for n := range 6 { // 96 MiB: more than a value-log file
		val := make([]byte, 16<<20)
		random.Read(val)
		key := fmt.Sprintf("large/%d", n)
		put(t, e, key, val)
		values[key] = val
	}
	check := func() {
		t.Helper()
		for key, val := range values {
			if !bytes.Equal(get(t, e, key), val) {
				t.Errorf("%s is not what was written", key)
			}
		}
		seen := 0
		err := e.View(t.Context(), func(r storage.Reader) error {
			return r.Scan([]byte("large/"), []byte("large0"), func(key, val []byte) bool {
				if !bytes.Equal(val, values[string(key)]) {
					t.Errorf("%s is not what was written", key)
				}
				seen++
				return true
			})
		})
		if err != nil || seen != len(values) {
			t.Errorf("a scan found %d of %d (%v)", seen, len(values), err)
		}
	}
	check()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	e = openWith(t, c)
	check()

	// Overwriting most of them makes garbage, which Badger detects when it
	// compacts the tree. Each Close adds a table; five start a compaction.
	for key := range values {
		if !strings.HasSuffix(key, "3") {
			put(t, e, key, nil)
			values[key] = nil
		}
	}
	for n := range 5 {
		put(t, e, "other", []byte{byte(n)})
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		e = openWith(t, c)
	}
	if err := e.db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil { // waits for compactions that Badger began by itself
		t.Fatal(err)
	}
	e = openWith(t, c)
	before := valueLogs(t, c.dir)
	for e.rewriteValueLog() {
	}
	if freed := before - valueLogs(t, c.dir); freed < 40<<20 {
		t.Errorf("%d MiB of at least 40 were freed", freed>>20)
	}
	check()
	if now, err := watchFiles(c.dir); err != nil || *now != *e.files {
		t.Errorf("watching %+v, the directory has %+v (%v)", *e.files, now, err)
	}
}

// valueLogs returns the size of the value log on disk in bytes.
func valueLogs(t *testing.T, dir string) (size int64) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "*"+valueLog))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range logs {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	return size
}

// TestUnreadableLargeValue damages the value log. Badger returns an empty value, but the
// engine must return an error.
func TestUnreadableLargeValue(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	val := bytes.Repeat([]byte("large"), maxInline)
	put(t, e, "key", val)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(c.dir, "*"+valueLog))
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	content, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	content[bytes.Index(content, []byte("large"))] ^= 1
	// Only the newest log is checked when the store is opened, so a newer one
	// is needed.
	e = openWith(t, c)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(logs[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
	e = openWith(t, c)
	err = e.View(t.Context(), func(r storage.Reader) error {
		val, err := r.Get([]byte("key"))
		if err == nil {
			t.Errorf("read %d bytes without an error", len(val))
		}
		return r.Scan(nil, nil, func(_, val []byte) bool {
			t.Errorf("scanned %d bytes without an error", len(val))
			return true
		})
	})
	if !errors.Is(err, errUnreadable) {
		t.Errorf("got %v", err)
	}
	if err := e.Backup(t.Context(), new(bytes.Buffer)); !errors.Is(err, errUnreadable) {
		t.Errorf("a backup with an unreadable value: %v", err)
	}
}
