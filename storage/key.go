package storage

import (
	"encoding/binary"
	"math"
)

// Key joins fields to a key, with a slash between them. Text stands as it is, so
// what others wrote comes last, or as a hash. An int64 is eight bytes,
// big-endian: keys lie in the order of those that are not below zero. Key panics
// at a field of another type, which is a mistake in the code.
func Key(fields ...any) []byte {
	key := make([]byte, 0, 96) // few are longer
	if len(fields) == 0 {
		return key
	}
	return AppendKey(appendField(key, fields[0]), fields[1:]...)
}

// AppendKey appends more fields to a key.
func AppendKey(key []byte, fields ...any) []byte {
	for _, field := range fields {
		key = appendField(append(key, '/'), field)
	}
	return key
}

func appendField(key []byte, field any) []byte {
	switch field := field.(type) {
	case string:
		return append(key, field...)
	case int64:
		return binary.BigEndian.AppendUint64(key, uint64(field))
	}
	panic("storage: a key has fields of type string and int64 alone") // without saying which: fields then stay on the stack of the caller
}

// Below returns the bounds, as [Reader] scans them, of all keys that begin with
// these fields and have more of them.
func Below(fields ...any) (lo, hi []byte) {
	lo = append(Key(fields...), '/')
	return lo, PrefixEnd(lo)
}

// Inverted counts down from the greatest integer, for keys that begin with the
// latest: what is inverted twice is what it was.
func Inverted(n int64) int64 { return math.MaxInt64 - n }
