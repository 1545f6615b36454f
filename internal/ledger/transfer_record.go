package ledger

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// transferLayout is the first byte of a transfer's record. Whatever moves money
// writes one, and that of many calls has a leg for each account, so it is binary:
// less than half of the JSON that it was at first (storage.RecordVersion).
//
// After it come the code of the kind, the time and the count as varints, the
// texts, each with its length, the legs, and last the CRC-32 (Castagnoli) of key
// and record: the key says the id, and the sum that the record belongs there. An
// account of the transfer's user is written without what all of his begin with.
const transferLayout = 2

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

var errTransferLayout = errors.New("its layout is not known to this build")

// decodeTransfer reads a transfer from its key and its record. One that cannot be
// read has its id only.
func decodeTransfer(key, record []byte) (x Transfer, err error) {
	var id ID
	if n := copy(id[:], key[len(transferPrefix):]); n != len(id) || len(key) != len(transferPrefix)+n {
		err = fmt.Errorf("%q is not its key", key)
	} else if x, err = decodeTransferOf(id, key, record); err != nil {
		x = Transfer{}
	}
	x.ID = id
	return x, err
}

func decodeTransferOf(id ID, key, record []byte) (x Transfer, err error) {
	if len(record) > 0 && record[0] == storage.RecordVersion {
		if err = storage.DecodeRecord(record, &x); err == nil && x.ID != id {
			err = fmt.Errorf("it says that it is %v", x.ID)
		}
		return x, err
	}
	end := len(record) - crc32.Size
	switch {
	case end < 2 || binary.BigEndian.Uint32(record[end:]) != recordSum(key, record[:end]):
		return x, errors.New("it is damaged, or that of another transfer")
	case record[0] != transferLayout:
		return x, errTransferLayout
	}
	f := fields{rest: record[2:end]}
	f.transfer(&x)
	var known bool
	if x.Kind, known = kindOf(record[1]); !known || f.bad || len(f.rest) > 0 {
		return x, errTransferLayout
	}
	return x, nil
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

// isOfCalls tells whether a record is that of a transfer of calls, without
// reading the rest: that is long.
func isOfCalls(record []byte) bool {
	if len(record) > 1 && record[0] == transferLayout {
		return record[1] == kindCodes[Calls]
	}
	kind, told := kindIn(record)
	return told && kind == Calls
}

// kindIn reads the kind in a record of JSON, which comes after the id.
func kindIn(record []byte) (kind Kind, told bool) {
	if len(record) == 0 || record[0] != storage.RecordVersion {
		return "", false
	}
	const before = len(`.{"id":"`) + 2*len(ID{})
	rest, told := bytes.CutPrefix(record[min(before, len(record)):], []byte(`","kind":"`))
	word, _, more := bytes.Cut(rest, []byte{'"'})
	return Kind(word), told && more
}
