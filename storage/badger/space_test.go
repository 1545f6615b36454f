package badger

import (
	"errors"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestLowSpaceRefusesWritesOnly(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
	free, failure := c.minFree, error(nil)
	c.free = func(string) (uint64, error) { return free, failure }
	e := openWith(t, c)
	put(t, e, "key", []byte("before"))

	write := func(tx storage.Txn) error { return tx.Set([]byte("key"), []byte("short"), never) }
	if got, least, err := e.Space(); got != free || least != c.minFree || err != nil {
		t.Errorf("%d bytes are free, of at least %d (%v)", got, least, err)
	}
	free--
	if err := e.Update(t.Context(), write); !errors.Is(err, storage.ErrLowSpace) {
		t.Errorf("with one byte less than the minimum: %v", err)
	}
	failure = errors.New("no such device")
	if err := e.Update(t.Context(), write); !errors.Is(err, storage.ErrLowSpace) || !errors.Is(err, failure) {
		t.Errorf("if the free space is unknown: %v", err)
	}
	read := func(tx storage.Txn) error { _, err := tx.Get([]byte("key")); return err }
	if err := e.Update(t.Context(), read); err != nil {
		t.Errorf("an update that writes nothing: %v", err)
	}
	if got := get(t, e, "key"); string(got) != "before" {
		t.Errorf("key: %q, want the earlier value", got)
	}
	free, failure = c.minFree, nil
	put(t, e, "key", []byte("after"))

	// A restart on a full disk is also refused.
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	free = 1 << 20
	if _, err := open(c); !errors.Is(err, storage.ErrLowSpace) {
		t.Errorf("opening with 1 MiB free: %v", err)
	}
	free = c.minFree - 1
	e = openWith(t, c)
	if got := get(t, e, "key"); string(got) != "after" {
		t.Errorf("key: %q", got)
	}
}

func TestFreeSpaceOfThisMachine(t *testing.T) {
	t.Parallel()
	free, err := freeSpace(t.TempDir())
	if err != nil || free == 0 {
		t.Errorf("%d bytes free (%v)", free, err)
	}
}
