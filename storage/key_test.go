package storage_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// TestKeysJoinFieldsWithSlashes has keys of stored data, which must never change.
func TestKeysJoinFieldsWithSlashes(t *testing.T) {
	t.Parallel()
	for want, fields := range map[string][]any{
		"":                                       nil,
		"task":                                   {"task"},
		"task/a/b":                               {"task", "a", "b"},
		"task//b":                                {"task", "", "b"},
		"due/\x00\x00\x00\x00\x00\x00\x01\x02/a": {"due", int64(258), "a"},
		"due/\x7f\xff\xff\xff\xff\xff\xff\xff":   {"due", int64(math.MaxInt64)},
		"due/\x7f\xff\xff\xff\xff\xff\xfe\xfd":   {"due", storage.Inverted(258)},
		"due/\xff\xff\xff\xff\xff\xff\xff\xff":   {"due", int64(-1)},
	} {
		if got := string(storage.Key(fields...)); got != want {
			t.Errorf("%v: %q, want %q", fields, got, want)
		}
	}
}

func TestKeyPanicsForOtherTypes(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a field of type int was accepted")
		}
	}()
	storage.Key("due", 1)
}

func TestKeysSortByTheirIntegers(t *testing.T) {
	t.Parallel()
	integers := []int64{0, 1, '/', 255, 256, 1 << 40, math.MaxInt64 - 1, math.MaxInt64}
	for i, after := range integers[1:] {
		before := integers[i]
		if bytes.Compare(storage.Key("a", before, "z"), storage.Key("a", after, "a")) >= 0 {
			t.Errorf("%d is not before %d", before, after)
		}
		if bytes.Compare(storage.Key("a", storage.Inverted(before)), storage.Key("a", storage.Inverted(after))) <= 0 {
			t.Errorf("%d inverted is not after %d inverted", before, after)
		}
	}
	for _, n := range integers {
		if got := storage.Inverted(storage.Inverted(n)); got != n {
			t.Errorf("%d inverted twice is %d", n, got)
		}
	}
}

func TestBelow(t *testing.T) {
	t.Parallel()
	lo, hi := storage.Below("a", "b")
	for key, within := range map[string]bool{
		"a/b/": true, "a/b/c": true, "a/b/\xff\xff": true, "a/b/c/d": true,
		"a/b": false, "a/bc": false, "a/b0": false, "a/a/c": false, "a": false,
	} {
		is := bytes.Compare([]byte(key), lo) >= 0 && bytes.Compare([]byte(key), hi) < 0
		if is != within {
			t.Errorf("%q: within is %v", key, is)
		}
	}
}
