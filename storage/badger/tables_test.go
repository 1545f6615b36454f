package badger

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestADamagedTableIsRefused damages tables. Badger would silently omit the keys of a
// damaged block.
func TestADamagedTableIsRefused(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	e := openWith(t, c)
	for n := range 200 {
		put(t, e, fmt.Sprintf("key/%03d", n), bytes.Repeat(fmt.Appendf(nil, "value %d ", n), 50))
	}
	if err := e.Close(); err != nil { // writes the memtable as a table
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(c.dir, "*.sst"))
	if err != nil || len(tables) != 1 {
		t.Fatal(tables, err)
	}
	whole, err := os.ReadFile(tables[0])
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]int{"first block": 100, "middle": len(whole) / 2, "index": len(whole) - 60, "end": len(whole) - 1} {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 0x40
		if err := os.WriteFile(tables[0], damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		e, err := open(c)
		if err == nil {
			_ = e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "is damaged; restore a backup") {
			t.Errorf("with damage in the %s: %v", what, err)
		}
	}
	if err := os.WriteFile(tables[0], whole, 0o600); err != nil {
		t.Fatal(err)
	}
	e = openWith(t, c)
	count := 0
	if err := e.View(t.Context(), func(r storage.Reader) error {
		return r.Scan(nil, nil, func(_, _ []byte) bool { count++; return true })
	}); err != nil || count != 200 {
		t.Errorf("the undamaged table has %d keys: %v", count, err)
	}
}
