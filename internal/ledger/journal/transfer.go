package journal

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Kind is the purpose of a transfer.
type Kind string

// The kinds of transfers.
const (
	Calls    Kind = "calls"    // settlements of calls, many in one
	Purchase Kind = "purchase" // of a plan, from the wallet
	Renewal  Kind = "renewal"  // of a subscription, from the wallet
	Grant    Kind = "grant"    // of a period's quota
	TopUp    Kind = "topup"    // a paid order
	Refund   Kind = "refund"   // of an order, to the payer
	Dispute  Kind = "dispute"  // of a payment, by the payer
	Restore  Kind = "restore"  // of a disputed payment, to the operator
	Credit   Kind = "credit"   // by an operator
	Debit    Kind = "debit"    // by an operator
	Clear    Kind = "clear"    // of a receivable, by an operator
	Hold     Kind = "hold"     // sets money aside
	Settle   Kind = "settle"   // ends a hold with a payment
	Void     Kind = "void"     // ends a hold without one
)

// kinds are the kinds. Records contain their indexes in this table, from 1, so the index of a
// kind never changes.
var kinds = []Kind{Calls, Purchase, Renewal, Grant, TopUp, Refund, Dispute, Restore, Credit, Debit, Clear, Hold, Settle, Void}

func (k Kind) code() byte { return byte(indexOf(kinds, k) + 1) }

func kindOf(code byte) (Kind, bool) {
	if code == 0 || int(code) > len(kinds) {
		return "", false
	}
	return kinds[code-1], true
}

// ID names a transfer. It is written as 32 hexadecimal digits.
type ID [16]byte

// String returns the id in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler.
func (id ID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, id[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (id *ID) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(id) {
		return fmt.Errorf("a transfer id has %d hexadecimal digits, this has %d", 2*len(id), len(text))
	}
	_, err := hex.Decode(id[:], text)
	return err
}

// Before reports whether id sorts before another.
func (id ID) Before(other ID) bool { return bytes.Compare(id[:], other[:]) < 0 }

// IDOf derives an id from words that describe a transfer. The same transfer always has the same
// id. Word boundaries count: ("a", "bc") and ("ab", "c") have different ids.
func IDOf(words ...string) (id ID) {
	hash := sha256.New()
	for _, word := range words {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(word)))
		hash.Write(size[:])
		hash.Write([]byte(word))
	}
	copy(id[:], hash.Sum(nil))
	return id
}

// TimedID returns a random id that begins with the time in milliseconds. A later id is greater.
func TimedID(now time.Time) (id ID) {
	_, _ = rand.Read(id[:])
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|uint64(id[6])<<8|uint64(id[7]))
	return id
}

// FirstTimed returns the smallest id that TimedID can return at t.
func FirstTimed(t time.Time) (id ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16)
	return id
}

// Leg is the change of one account by a transfer.
type Leg struct {
	Account Account      `json:"a"`
	Amount  money.Amount `json:"n,omitempty"` // change of the balance
	Held    money.Amount `json:"h,omitempty"` // change of the held amount
	Number  uint64       `json:"e,omitempty"` // number among the legs of the account, from 1; for an account of a user, also of the entry
}

// Transfer moves money. The sum of its legs without memo accounts is zero. Legs that change
// nothing are omitted.
type Transfer struct {
	ID        ID
	Kind      Kind
	Time      int64 // Unix milliseconds
	User      string
	Legs      []Leg
	Reference string // id of an order, a subscription, a hold or a task
	Actor     string // who caused the transfer, if not the user
	Reason    string // text of the operator
	Count     int    // number of settlements, for Calls
}

// TransferKey returns the key of a transfer.
func TransferKey(id ID) []byte { return append([]byte(TransferPrefix), id[:]...) }

// LegsBetween returns the two legs that move amount from one account to another.
func LegsBetween(from, to Account, amount money.Amount) []Leg {
	return []Leg{{Account: from, Amount: -amount}, {Account: to, Amount: amount}}
}

// Entry returns the entry of a leg, without the state after it.
func (x *Transfer) Entry(leg Leg) Entry {
	return Entry{
		Number: leg.Number, Kind: x.Kind, Transfer: x.ID,
		Amount: leg.Amount, Held: leg.Held, Time: time.UnixMilli(x.Time),
	}
}

// Book writes a transfer with the entries of users. If a transfer with this id exists, Book
// returns false and changes nothing. If the transfer takes more from a user than is available, it
// returns [fault.InsufficientBalance]. Reservations prevent that; this is the last check.
func Book(t storage.Txn, now time.Time, x Transfer) (bool, error) {
	if have, err := HasTransfer(t, x.ID); err != nil || have {
		return false, err
	}
	return true, BookNew(t, now, x)
}

// BookNew is [Book] for a transfer that certainly does not exist.
func BookNew(t storage.Txn, now time.Time, x Transfer) error {
	x.Time = now.UnixMilli()
	legs := x.Legs
	x.Legs = nil
	var sum money.Amount
	for _, leg := range legs {
		if leg.Amount == 0 && leg.Held == 0 {
			continue
		}
		leg.Account = leg.Account.On(now)
		if err := x.enter(t, &leg); err != nil {
			return err
		}
		if !leg.Account.Memo() {
			sum += leg.Amount // an overflow is noticed, because enter checks each balance
		}
		x.Legs = append(x.Legs, leg)
	}
	if sum != 0 {
		panic(fmt.Sprintf("ledger: the legs of a %s have the sum %v", x.Kind, sum))
	}
	key := TransferKey(x.ID)
	return t.Set(key, x.Encode(key), time.Time{})
}

// enter numbers a leg and writes the account's new state and, for an account of a user, the
// entry.
func (x *Transfer) enter(t storage.Txn, leg *Leg) error {
	before, err := ReadState(t, leg.Account)
	if err != nil {
		return err
	}
	leg.Number = before.Entries + 1
	after := State{Entries: leg.Number, Reserved: before.Reserved}
	var fits, held bool
	after.Balance, fits = before.Balance.Add(leg.Amount)
	after.Held, held = before.Held.Add(leg.Held)
	switch {
	case (!fits || !held) && leg.Account.System():
		return fault.New(fault.AmountOutOfRange, "the total of one day would be out of range")
	case !fits || !held:
		return fault.New(fault.AmountOutOfRange, "the balance of the account %s would be out of range", leg.Account.Own())
	case after.Held < 0:
		return fmt.Errorf("ledger: a transfer releases more of %s than is held", leg.Account)
	case leg.Account.NonNegative() && after.Available() < 0 && after.Available() < before.Available():
		return fault.New(fault.InsufficientBalance, "the balance is insufficient")
	}
	if !leg.Account.System() {
		e := x.Entry(*leg)
		e.After = after
		if err := t.Set(EntryKey(leg.Account, e.Number), e.Encode(), time.Time{}); err != nil {
			return err
		}
	}
	return t.Set(AccountKey(leg.Account), after.Encode(), time.Time{})
}

// HasTransfer reports whether a transfer with this id exists.
func HasTransfer(r storage.Reader, id ID) (bool, error) {
	record, err := r.Get(TransferKey(id))
	return record != nil, err
}

// ReadTransfer returns a transfer and whether it exists. If its record cannot be decoded, it
// returns [storage.ErrUnreadable].
func ReadTransfer(r storage.Reader, id ID) (x Transfer, found bool, err error) {
	key := TransferKey(id)
	record, err := r.Get(key)
	if err != nil || record == nil {
		return x, false, err
	}
	if x, err = DecodeTransfer(key, record); err != nil {
		return x, true, fmt.Errorf("transfer %v: %w: %w", id, storage.ErrUnreadable, err)
	}
	return x, true, nil
}

// ScanTransfers calls fn for every transfer except those of calls, in the order of ids. It skips
// transfers that cannot be decoded: the verification of the ledger reports them.
func ScanTransfers(r storage.Reader, fn func(Transfer) error) error {
	var failed error
	err := r.Scan([]byte(TransferPrefix), storage.PrefixEnd([]byte(TransferPrefix)), func(key, record []byte) bool {
		if isOfCalls(record) {
			return true
		}
		if x, err := DecodeTransfer(key, record); err == nil {
			failed = fn(x)
		}
		return failed == nil
	})
	return cmp.Or(failed, err)
}
