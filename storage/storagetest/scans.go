package storagetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func writesDuringScan(t *testing.T, e transactor) {
	set(t, e, "a", "1", "c", "3", "e", "5")
	update(t, e, func(txn storage.Txn) error {
		var seen []string
		var errs []error
		err := txn.Scan(nil, nil, func(key, val []byte) bool {
			seen = append(seen, string(key)+"="+string(val))
			if len(seen) == 1 {
				errs = append(errs,
					txn.Set([]byte("b"), []byte("2"), never),
					txn.Set([]byte("c"), []byte("33"), never),
					txn.Delete([]byte("e")),
					has(txn, "c", "33"), lacks(txn, "e"), // Get sees them at once
				)
			}
			return true
		})
		if got := strings.Join(seen, " "); got != "a=1 c=3 e=5" {
			errs = append(errs, fmt.Errorf("the scan saw %s, want a=1 c=3 e=5", got))
		}
		errs = append(errs, err, holds(txn, nil, nil, "a", "1", "b", "2", "c", "33"))
		return errors.Join(errs...)
	})
	expect(t, e, "a", "1", "b", "2", "c", "33")
}

func scanBounds(t *testing.T, e transactor) {
	set(t, e, "c", "3", "a", "1", "e", "5", "b", "2", "d", "4")
	check := func(r storage.Reader) error {
		for _, test := range []struct {
			lo, hi string // "" is nil
			limit  int
			want   string
		}{
			{"", "", 9, "abcde"},
			{"b", "d", 9, "bc"},
			{"b", "", 9, "bcde"},
			{"", "c", 9, "ab"},
			{"aa", "cc", 9, "bc"},
			{"e", "", 9, "e"},
			{"f", "", 9, ""},
			{"c", "c", 9, ""},
			{"d", "b", 9, ""},
			{"", "", 1, "a"},
			{"b", "", 1, "b"},
			{"b", "", 2, "bc"},
			{"", "", 4, "abcd"},
		} {
			var lo, hi []byte
			if test.lo != "" {
				lo = []byte(test.lo)
			}
			if test.hi != "" {
				hi = []byte(test.hi)
			}
			var got strings.Builder
			err := r.Scan(lo, hi, func(key, _ []byte) bool {
				got.Write(key)
				return got.Len() < test.limit
			})
			if err != nil {
				return err
			}
			if got.String() != test.want {
				return fmt.Errorf("scan of [%q, %q) up to %d gave %q, want %q", test.lo, test.hi, test.limit, &got, test.want)
			}
		}
		return nil
	}
	view(t, e, check)
	update(t, e, func(txn storage.Txn) error {
		// The same, with half of the keys written by the transaction itself.
		return errors.Join(
			txn.Delete([]byte("b")), txn.Set([]byte("b"), nil, never),
			txn.Set([]byte("d"), nil, never), txn.Set([]byte("aaa"), nil, never),
			txn.Delete([]byte("aaa")), check(txn),
		)
	})
}

func nestedScans(t *testing.T, e transactor) {
	set(t, e, "a", "1", "b", "2")
	check := func(want string) func(storage.Reader) error {
		return func(r storage.Reader) error {
			var got strings.Builder
			var inner error
			outer := r.Scan(nil, nil, func(key, _ []byte) bool {
				inner = r.Scan(nil, nil, func(other, _ []byte) bool {
					fmt.Fprintf(&got, "%s%s ", key, other)
					return true
				})
				return inner == nil
			})
			if got.String() != want {
				return fmt.Errorf("a scan within a scan gave %q, want %q", &got, want)
			}
			return errors.Join(outer, inner)
		}
	}
	view(t, e, check("aa ab ba bb "))
	update(t, e, func(txn storage.Txn) error {
		return errors.Join(
			txn.Delete([]byte("a")), txn.Set([]byte("c"), nil, never), check("bb bc cb cc ")(txn))
	})
}

func readsStay(t *testing.T, e transactor) {
	const n = 300
	update(t, e, func(txn storage.Txn) error {
		for i := range n {
			if err := txn.Set(fmt.Appendf(nil, "k%04d", i), fmt.Appendf(nil, "value of %d", i), never); err != nil {
				return err
			}
		}
		return nil
	})
	check := func(r storage.Reader) error {
		var keys, scanned, got [][]byte // kept without copying
		err := r.Scan(nil, nil, func(key, val []byte) bool {
			keys, scanned = append(keys, key), append(scanned, val)
			return true
		})
		if err != nil || len(keys) != n {
			return fmt.Errorf("scan gave %d keys, %v; want %d", len(keys), err, n)
		}
		for _, key := range keys {
			val, err := r.Get(key)
			if err != nil {
				return err
			}
			got = append(got, val)
		}
		for i := range n {
			key, val := fmt.Sprintf("k%04d", i), fmt.Sprintf("value of %d", i)
			if string(keys[i]) != key || string(scanned[i]) != val || string(got[i]) != val {
				return fmt.Errorf("key %d turned to %q, its value to %q by scan, %q by get", i, keys[i], scanned[i], got[i])
			}
		}
		return nil
	}
	view(t, e, check)
	update(t, e, func(txn storage.Txn) error { return check(txn) })
}
