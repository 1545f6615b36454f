package storage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	type record struct {
		Name string `json:"name"`
	}
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	err := store.Update(t.Context(), func(txn storage.Txn) error {
		return storage.SetRecord(txn, []byte("a/1"), record{"x"})
	})
	if err != nil {
		t.Fatal(err)
	}
	err = store.View(t.Context(), func(r storage.Reader) error {
		var got record
		if found, err := storage.GetRecord(r, []byte("a/1"), &got); err != nil || !found || got.Name != "x" {
			t.Errorf("got %v %v %v", got, found, err)
		}
		if found, err := storage.GetRecord(r, []byte("a/2"), &got); err != nil || found {
			t.Errorf("an absent record: %v %v", found, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestARecordOfANewerBuildIsRefused(t *testing.T) {
	t.Parallel()
	var v any
	for name, record := range map[string][]byte{"newer": []byte("\x02{}"), "empty": {}, "not JSON": []byte("\x01{")} {
		if err := storage.DecodeRecord(record, &v); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
}

func TestAStoreOfANewerBuildIsRefused(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	key := []byte("meta/format")
	setFormat := func(format int64) {
		t.Helper()
		if err := store.Update(t.Context(), func(txn storage.Txn) error {
			return storage.SetRecord(txn, key, map[string]int64{"format": format, "created": 5})
		}); err != nil {
			t.Fatal(err)
		}
	}
	storedFormat := func() (have map[string]int64) {
		t.Helper()
		if err := store.View(t.Context(), func(r storage.Reader) error {
			_, err := storage.GetRecord(r, key, &have)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return have
	}
	check := func() error { return storage.CheckFormat(t.Context(), store) }
	for range 2 { // the first writes the format, the second finds it
		if err := check(); err != nil {
			t.Fatal(err)
		}
	}
	own := storedFormat()["format"]
	setFormat(own + 1)
	if err := check(); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("format %d", own+1)) {
		t.Errorf("a newer store: %v", err)
	}
}

func TestPrefixEndIsTheFirstKeyAfterThePrefix(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]string{"a/": "a0", "a\xff": "b", "": "", "\xff\xff": ""} {
		if got := string(storage.PrefixEnd([]byte(prefix))); got != want {
			t.Errorf("%q: %q, want %q", prefix, got, want)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte("\x01{\"name\":\"x\"}"))
	f.Add([]byte{})
	f.Fuzz(func(_ *testing.T, record []byte) {
		var v struct{ Name string }
		_ = storage.DecodeRecord(record, &v) // must not panic
	})
}
