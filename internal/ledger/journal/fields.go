package journal

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
)

// The records of calls and transfers consist of numbers as varints and texts with their lengths,
// and end with a checksum.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordSum returns the CRC-32 (Castagnoli) of a key and its record without the sum. The sum
// detects a damaged record, and a record at a wrong key.
func recordSum(key, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record)
}

// seal appends the checksum to the record of a key.
func seal(key, record []byte) []byte {
	return binary.BigEndian.AppendUint32(record, recordSum(key, record))
}

// unseal returns the fields of the record of a key, and false if the checksum does not match.
func unseal(key, record []byte) (fields, bool) {
	end := len(record) - crc32.Size
	if end < 0 || binary.BigEndian.Uint32(record[end:]) != recordSum(key, record[:end]) {
		return fields{}, false
	}
	return fields{rest: record[:end]}, true
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// fields decodes a record from its front. bad is set after an error.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) number() int64 {
	n, size := binary.Varint(f.rest)
	f.skip(size)
	return n
}

// count reads the number of elements that follow. Each element has at least one byte.
func (f *fields) count() int {
	n := f.unsigned()
	if n > uint64(len(f.rest)) {
		f.bad = true
		return 0
	}
	return int(n) //nolint:gosec // at most the length of rest
}

// skip skips a varint of this size; a size of zero is an error.
func (f *fields) skip(size int) {
	f.bad = f.bad || size == 0
	f.take(size)
}

func (f *fields) text() string { return string(f.take(f.count())) }

func (f *fields) take(n int) (b []byte) {
	if n < 0 || n > len(f.rest) {
		f.bad, f.rest = true, nil
		return nil
	}
	b, f.rest = f.rest[:n], f.rest[n:]
	return b
}

func (f *fields) byte() byte {
	if b := f.take(1); !f.bad {
		return b[0]
	}
	return 0
}

func (f *fields) unsigned() uint64 {
	n, size := binary.Uvarint(f.rest)
	f.skip(size)
	return n
}

// valueAt returns the value at an index of its table.
func valueAt[Value any](f *fields, values []Value, index int64) (value Value) {
	if index < 0 || index >= int64(len(values)) {
		f.bad = true
		return value
	}
	return values[index]
}

// indexOf returns the index of a value in its table. Records contain the index.
func indexOf[Value comparable](values []Value, value Value) int64 {
	i := slices.Index(values, value)
	if i < 0 {
		panic(fmt.Sprintf("journal: no code for %v", value)) // a bug
	}
	return int64(i)
}
