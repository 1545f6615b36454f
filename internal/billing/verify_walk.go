package billing

import (
	"cmp"
	"errors"

	"github.com/caddy-modelgate/modelgate/storage"
)

// exists checks that what a key points to is there.
func (v *verification) exists(key, target []byte) error {
	have, err := v.Get(target)
	if err == nil && have == nil {
		v.problem("key %q: %q is not there", key, target)
	}
	return err
}

// keys calls fn for all keys below a prefix that are of a user and n integers.
func (v *verification) keys(prefix string, n int, fn func(key []byte, user string, n ...int64) error) error {
	return v.scan(prefix, func(key []byte) error {
		return v.fields(key, prefix, n, func(user string, n ...int64) error { return fn(key, user, n...) })
	})
}

// named calls fn for all keys below a prefix that are of an integer and a name.
func (v *verification) named(prefix string, fn func(key []byte, n int64, name string) error) error {
	return v.scan(prefix, func(key []byte) error {
		at := len(prefix) + 1
		if len(key) < at+9 || key[at+8] != '/' {
			v.problem("key %q: it cannot be read by this build", key)
			return nil
		}
		return fn(key, integer(key, at), string(key[at+9:]))
	})
}

// fields takes a key apart that is of a user, who may be left out, and n
// integers.
func (v *verification) fields(key []byte, prefix string, n int, fn func(user string, n ...int64) error) error {
	at := len(key) - 9*n
	numbers := make([]int64, n)
	for i := range numbers {
		if at < len(prefix) || key[at+9*i] != '/' {
			v.problem("key %q: it cannot be read by this build", key)
			return nil
		}
		numbers[i] = integer(key, at+9*i+1)
	}
	user := ""
	if at > len(prefix) {
		user = string(key[len(prefix)+1 : at])
	}
	return fn(user, numbers...)
}

func (v *verification) scan(prefix string, fn func(key []byte) error) error {
	var failed error
	lo, hi := storage.Below(prefix)
	err := v.Scan(lo, hi, func(key, _ []byte) bool {
		failed = v.pass(fn(key))
		return failed == nil
	})
	return cmp.Or(err, failed)
}

// each calls fn for all records below a prefix.
func each[T any](v *verification, prefix string, fn func(key []byte, record T) error) error {
	var failed error
	lo, hi := storage.Below(prefix)
	err := v.Scan(lo, hi, func(key, val []byte) bool {
		var record T
		if err := storage.DecodeRecord(val, &record); err != nil {
			v.problem("key %q: its record cannot be read: %v", key, err)
			return true
		}
		failed = v.pass(fn(key, record))
		return failed == nil
	})
	return cmp.Or(err, failed)
}

// pass tells of a record that could not be read: it keeps nothing else from being
// looked at.
func (v *verification) pass(err error) error {
	if errors.Is(err, storage.ErrUnreadable) {
		v.problem("%v", err)
		return nil
	}
	return err
}
