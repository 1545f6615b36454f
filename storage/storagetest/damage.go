package storagetest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// DamageEach damages each record of a store, one after another. It changes the
// version to one that no build can read, calls fn with the key, and restores the
// record.
func DamageEach(t testing.TB, s *storage.Store, fn func(key string)) {
	t.Helper()
	ctx := context.Background()
	records := make(map[string][]byte)
	err := s.View(ctx, func(r storage.Reader) error {
		return r.Scan([]byte{0}, []byte{0xff}, func(key, val []byte) bool {
			if len(val) > 0 {
				records[string(key)] = bytes.Clone(val)
			}
			return true
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	set := func(key string, val []byte) {
		t.Helper()
		if err := s.Update(ctx, func(t storage.Txn) error { return t.Set([]byte(key), val, time.Time{}) }); err != nil {
			t.Fatal(err)
		}
	}
	for key, val := range records {
		damaged := bytes.Clone(val)
		damaged[0] ^= 0x40
		set(key, damaged)
		fn(key)
		set(key, val)
	}
}
