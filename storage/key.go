package storage

import (
	"encoding/binary"
	"math"
)

// Key joins fields with slashes. A string is copied as it is, so text from
// outside must come last or as a hash. An int64 is eight bytes, big-endian, so
// keys sort by number if it is not negative. Key panics if a field has another
// type, which is a programming error.
func Key(fields ...any) []byte {
	key := make([]byte, 0, 96) // most keys are shorter
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
	panic("storage: a key has only fields of type string and int64") // the field is not printed, so that fields do not escape to the heap
}

// Below returns the bounds for [Reader].Scan of all keys that begin with these
// fields and have more.
func Below(fields ...any) (lo, hi []byte) {
	lo = append(Key(fields...), '/')
	return lo, PrefixEnd(lo)
}

// Inverted maps larger numbers to smaller ones, for keys that list the latest
// first. Inverting twice returns the original number.
func Inverted(n int64) int64 { return math.MaxInt64 - n }
