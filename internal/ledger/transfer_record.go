package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// transferLayout is the first byte of a transfer's record. Whatever moves money
// writes one, and that of many calls has a leg for each account, so it is binary:
// less than half of the bytes of JSON.
//
// After it come the code of the kind, the time and the count as varints, the
// texts, each with its length, the legs, and last the CRC-32 (Castagnoli) of key
// and record: the key says the id, and the sum that the record belongs there. An
// account of the transfer's user is written without the prefix that all accounts of that user have.
const transferLayout = 1

// How a leg writes its account.
const (
	fullAccount = iota
	ownAccount  // without ownPrefix
)

// encode returns the record as it stands at key, which is that of the transfer.
func (x *Transfer) encode(key []byte) []byte {
	code, known := kindCodes[x.Kind]
	if !known {
		panic(fmt.Sprintf("ledger: records have no code for %q", x.Kind)) // a mistake in the code
	}
	b := make([]byte, 0, 64+len(x.User)+len(x.Reference)+len(x.Actor)+len(x.Reason)+48*len(x.Legs))
	b = append(b, transferLayout, code)
	b = binary.AppendVarint(b, x.Time)
	b = binary.AppendVarint(b, int64(x.Count))
	for _, text := range [...]string{x.User, x.Reference, x.Actor, x.Reason} {
		b = appendText(b, text)
	}
	own := string(ownPrefix(x.User))
	b = binary.AppendUvarint(b, uint64(len(x.Legs)))
	for _, leg := range x.Legs {
		if rest, is := strings.CutPrefix(string(leg.Account), own); is {
			b = appendText(append(b, ownAccount), rest)
		} else {
			b = appendText(append(b, fullAccount), string(leg.Account))
		}
		b = binary.AppendVarint(b, int64(leg.Amount))
		b = binary.AppendVarint(b, int64(leg.Held))
		b = binary.AppendUvarint(b, leg.Number)
	}
	return binary.BigEndian.AppendUint32(b, recordSum(key, b))
}

// decodeTransfer reads a transfer from its key and its record. If that fails, it returns a
// transfer with its id only, and the reason.
func decodeTransfer(key, record []byte) (x Transfer, err error) {
	n, end := copy(x.ID[:], key[len(transferPrefix):]), len(record)-crc32.Size
	switch {
	case n != len(x.ID) || len(key) != len(transferPrefix)+n:
		return x, fmt.Errorf("%q is not its key", key)
	case end < 2 || binary.BigEndian.Uint32(record[end:]) != recordSum(key, record[:end]):
		return x, errors.New("it is damaged, or that of another transfer")
	}
	f, read := fields{rest: record[2:end]}, Transfer{ID: x.ID}
	f.transfer(&read)
	var known bool
	if read.Kind, known = kindOf(record[1]); record[0] != transferLayout || !known || f.bad || len(f.rest) > 0 {
		return x, errors.New("its layout is not known to this build")
	}
	return read, nil
}

func (f *fields) transfer(x *Transfer) {
	x.Time, x.Count = f.number(), int(f.number())
	x.User, x.Reference, x.Actor, x.Reason = f.text(), f.text(), f.text(), f.text()
	own := ownPrefix(x.User)
	n := f.count()
	if n == 0 {
		return
	}
	x.Legs = make([]Leg, 0, min(n, len(f.rest)/5)) // a leg takes five bytes at least
	for range n {
		var leg Leg
		switch f.byte() {
		case fullAccount:
			leg.Account = Account(f.text())
		case ownAccount:
			leg.Account = own + Account(f.text())
		default:
			f.bad = true
		}
		leg.Amount, leg.Held, leg.Number = money.Amount(f.number()), money.Amount(f.number()), f.unsigned()
		if f.bad {
			return
		}
		x.Legs = append(x.Legs, leg)
	}
}

// isOfCalls reports whether a record is that of a transfer of calls, without
// reading the rest: that is long.
func isOfCalls(record []byte) bool {
	return len(record) > 1 && record[0] == transferLayout && record[1] == kindCodes[Calls]
}

// This file is what all binary records are made of: numbers as varints, texts with
// their lengths, and at the end a sum.

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordSum is the CRC-32 (Castagnoli) of a key and what its record has before the
// sum: it tells a damaged record, and one that lies at the key of another.
func recordSum(key, record []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record)
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// fields reads a record from its front. Whatever it is not is bad.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) number() int64 {
	n, size := binary.Varint(f.rest)
	f.skip(size)
	return n
}

// count reads a number of things, each of which takes a byte at least.
func (f *fields) count() int {
	n, size := binary.Uvarint(f.rest)
	f.skip(size)
	if n > uint64(len(f.rest)) {
		f.bad = true
		return 0
	}
	return int(n) //nolint:gosec // it is no more than a length
}

// skip passes over a varint; a size of none is that of one that is not there.
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
