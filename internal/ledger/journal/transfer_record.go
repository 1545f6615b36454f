package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/money"
)

// transferLayout is the first byte of a transfer's record. Every change of money writes a
// transfer, and a transfer of many calls has a leg for each account. So the record is binary: with
// 100 legs it takes 3.3 KB and 42 µs to write and read; as JSON, 5.6 KB and 330 µs.
//
// The layout is followed by the code of the kind, the time and the count as varints. Then come
// the texts, each with its length, the legs, and the checksum of key and record. The key contains
// the id. An account of the transfer's user is written without the prefix of that user's
// accounts.
const transferLayout = 1

// How a leg writes its account.
const (
	fullAccount = iota
	ownAccount  // without ownPrefix
)

// Encode returns the record of the transfer. key is the transfer's key.
func (x *Transfer) Encode(key []byte) []byte {
	b := make([]byte, 0, 64+len(x.User)+len(x.Reference)+len(x.Actor)+len(x.Reason)+48*len(x.Legs))
	b = append(b, transferLayout, x.Kind.code())
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
	return seal(key, b)
}

// DecodeTransfer decodes a transfer from its key and its record. With an error it returns a
// transfer that has only its id.
func DecodeTransfer(key, record []byte) (x Transfer, err error) {
	if n := copy(x.ID[:], key[len(TransferPrefix):]); n != len(x.ID) || len(key) != len(TransferPrefix)+n {
		return x, fmt.Errorf("%q is not the key of a transfer", key)
	}
	f, intact := unseal(key, record)
	if !intact {
		return x, errors.New("it is damaged, or belongs to another transfer")
	}
	read := Transfer{ID: x.ID}
	layout := f.byte()
	if f.transfer(&read); layout != transferLayout || f.bad || len(f.rest) > 0 {
		return x, errors.New("its layout is not known to this build")
	}
	return read, nil
}

func (f *fields) transfer(x *Transfer) {
	x.Kind = valueAt(f, kinds, int64(f.byte())-1)
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

// isOfCalls reports whether a record is a transfer of calls. It reads only the first two bytes.
func isOfCalls(record []byte) bool {
	return len(record) > 1 && record[0] == transferLayout && record[1] == Calls.code()
}
