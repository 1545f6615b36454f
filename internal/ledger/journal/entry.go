package journal

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// State is the state of an account.
type State struct {
	Balance  money.Amount // sum of the legs
	Held     money.Amount // part of the balance that open holds set aside
	Reserved money.Amount // part of the balance that each [CallHold] sets aside; zero in a lone store
	Entries  uint64       // number of legs; for an account of a user, also of entries
}

// Available returns the amount that may be spent.
func (s State) Available() money.Amount { return s.Balance - s.Held - s.Reserved }

// Used returns the spending that a memo account counts, including what is set aside.
func (s State) Used() money.Amount { return s.Held + s.Reserved - s.Balance }

// Keys of the store:
//
//	acct/<account>               the state of an account
//	entry/<account>\0<^number>   its entries, newest first; of accounts of users
//	xfer/<id>                    transfers
const (
	AccountPrefix  = "acct/"
	EntryPrefix    = "entry/"
	TransferPrefix = "xfer/"
)

// AccountKey returns the key of the state of an account.
func AccountKey(a Account) []byte { return []byte(AccountPrefix + string(a)) }

// AccountsKey returns the prefix of the keys of all accounts of a user.
func AccountsKey(user string) []byte { return AccountKey(ownPrefix(user)) }

// EntryKey returns the key of an entry of an account.
func EntryKey(a Account, number uint64) []byte {
	key := make([]byte, 0, len(EntryPrefix)+len(a)+9)
	key = append(append(append(key, EntryPrefix...), a...), 0)
	return binary.BigEndian.AppendUint64(key, math.MaxUint64-number)
}

// layout is the first byte of states and entries, which have fixed binary layouts. It increases
// when one of them changes. A batch of calls writes one state and one entry for each account. A
// state and an entry take 83 bytes and 0.3 µs to write and read; as JSON, 262 bytes and 23 µs.
const layout = 1

const stateSize = 1 + 3*8

// A state with a reserved amount has a layout of its own, which ends with that amount.
const (
	reservedLayout = 2
	reservedSize   = stateSize + 8
)

// Encode returns the record of the state.
func (s State) Encode() []byte {
	b := make([]byte, 0, reservedSize)
	b = append(b, layout)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Balance))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Held))
	b = binary.BigEndian.AppendUint64(b, s.Entries)
	if s.Reserved != 0 {
		b[0] = reservedLayout
		b = binary.BigEndian.AppendUint64(b, uint64(s.Reserved))
	}
	return b
}

// DecodeState reads the record of a state.
func DecodeState(b []byte) (State, error) {
	reserved := len(b) == reservedSize && b[0] == reservedLayout
	if !reserved && (len(b) != stateSize || b[0] != layout) {
		return State{}, fmt.Errorf("an account record of %d bytes cannot be read by this build", len(b))
	}
	s := State{
		Balance: money.Amount(binary.BigEndian.Uint64(b[1:])),
		Held:    money.Amount(binary.BigEndian.Uint64(b[9:])),
		Entries: binary.BigEndian.Uint64(b[17:]),
	}
	if reserved {
		s.Reserved = money.Amount(binary.BigEndian.Uint64(b[stateSize:]))
	}
	return s, nil
}

// ReadState returns the state of an account; the zero State if no transfer has changed it.
func ReadState(r storage.Reader, a Account) (State, error) {
	record, err := r.Get(AccountKey(a))
	if err != nil || record == nil {
		return State{}, err
	}
	s, err := DecodeState(record)
	if err != nil {
		return s, fmt.Errorf("account %s: %w", a, err)
	}
	return s, nil
}

// Entry is one change of a user's account. System accounts have none.
type Entry struct {
	Number   uint64 // from 1, without gaps
	Kind     Kind
	Transfer ID
	Amount   money.Amount // the change of the balance
	Held     money.Amount // the change of the held amount
	After    State
	Time     time.Time // to the millisecond
}

const entrySize = 2 + len(ID{}) + 5*8

// Encode returns the record of the entry.
func (e Entry) Encode() []byte {
	b := make([]byte, 0, entrySize)
	b = append(b, layout, e.Kind.code())
	b = append(b, e.Transfer[:]...)
	for _, n := range [...]int64{int64(e.Amount), int64(e.Held), int64(e.After.Balance), int64(e.After.Held), e.Time.UnixMilli()} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// DecodeEntry reads an entry and its account from its key and its record.
func DecodeEntry(key, b []byte) (e Entry, a Account, err error) {
	name := key[len(EntryPrefix):]
	if len(name) < 9 || name[len(name)-9] != 0 || len(b) != entrySize || b[0] != layout {
		return e, a, fmt.Errorf("entry %q: %w", key, storage.ErrUnreadable)
	}
	a = Account(name[:len(name)-9])
	e.Number = math.MaxUint64 - binary.BigEndian.Uint64(name[len(name)-8:])
	var known bool
	if e.Kind, known = kindOf(b[1]); !known {
		return e, a, fmt.Errorf("the kind of the entry at %q is not known to this build", key)
	}
	copy(e.Transfer[:], b[2:])
	field := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+len(e.Transfer)+8*i:])) }
	e.Amount, e.Held = money.Amount(field(0)), money.Amount(field(1))
	e.After = State{Balance: money.Amount(field(2)), Held: money.Amount(field(3)), Entries: e.Number}
	e.Time = time.UnixMilli(field(4)).UTC()
	return e, a, nil
}

// ScanEntries calls fn for the entries of an account, newest first, until fn returns false. It
// begins with the entry below the number before; with the newest if that is zero.
func ScanEntries(r storage.Reader, a Account, before uint64, fn func(Entry) bool) error {
	lo, hi := EntryKey(a, math.MaxUint64), storage.PrefixEnd(append([]byte(EntryPrefix+string(a)), 0))
	if before > 0 {
		lo = EntryKey(a, before-1)
	}
	var bad error
	err := r.Scan(lo, hi, func(key, val []byte) bool {
		var e Entry
		e, _, bad = DecodeEntry(key, val)
		return bad == nil && fn(e)
	})
	return cmp.Or(err, bad)
}
