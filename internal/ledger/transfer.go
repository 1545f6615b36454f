package ledger

import (
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

// Kind is what a transfer is for.
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
	Restore  Kind = "restore"  // of a disputed payment, to us
	Credit   Kind = "credit"   // by an operator
	Debit    Kind = "debit"    // by an operator
	Clear    Kind = "clear"    // of a receivable, by an operator
	Hold     Kind = "hold"     // sets money aside
	Settle   Kind = "settle"   // ends a hold with a payment
	Void     Kind = "void"     // ends a hold without one
)

// kindCodes are the kinds as entries write them. A code is never used again for
// another kind.
var kindCodes = map[Kind]byte{
	Calls: 1, Purchase: 2, Renewal: 3, Grant: 4, TopUp: 5, Refund: 6, Dispute: 7, Restore: 8,
	Credit: 9, Debit: 10, Clear: 11, Hold: 12, Settle: 13, Void: 14,
}

// kindsByCode is kindCodes the other way round.
var kindsByCode = func() (kinds [1 << 8]Kind) {
	for kind, code := range kindCodes {
		kinds[code] = kind
	}
	return kinds
}()

func kindOf(code byte) (Kind, bool) { return kindsByCode[code], kindsByCode[code] != "" }

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

// IDOf derives an id from what a transfer does: two that do the same thing are
// one. The words are told apart, so that ("a", "bc") is not ("ab", "c").
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

// timedID draws an id that begins with the time in milliseconds, so that ids
// drawn later are greater.
func timedID(now time.Time) (id ID) {
	_, _ = rand.Read(id[:])
	binary.BigEndian.PutUint64(id[:8], uint64(now.UnixMilli())<<16|uint64(id[6])<<8|uint64(id[7]))
	return id
}

// firstTimed returns the least id that timedID draws at t.
func firstTimed(t time.Time) (id ID) {
	binary.BigEndian.PutUint64(id[:8], uint64(t.UnixMilli())<<16)
	return id
}

// Leg is what a transfer does to one account.
type Leg struct {
	Account Account      `json:"a"`
	Amount  money.Amount `json:"n,omitempty"` // change of the balance
	Held    money.Amount `json:"h,omitempty"` // change of what is held
	Number  uint64       `json:"e,omitempty"` // among the legs of the account, from 1; of the entry it became, if it is of a user
}

// Transfer moves money. The amounts of its legs, but for those of memo
// accounts, have the sum zero. A leg of nothing is left out.
type Transfer struct {
	ID        ID
	Kind      Kind
	Time      int64 // Unix milliseconds
	User      string
	Legs      []Leg
	Reference string // what it is about: an order, a subscription, a hold
	Actor     string // who did it, where that is not the user
	Reason    string // why, in an operator's words
	Count     int    // of settlements, for Calls
}

func transferKey(id ID) []byte { return append([]byte(transferPrefix), id[:]...) }

// LegsBetween returns the two legs that bring amount from one account to another.
func LegsBetween(from, to Account, amount money.Amount) []Leg {
	return []Leg{{Account: from, Amount: -amount}, {Account: to, Amount: amount}}
}

// ErrShort is the error of a transfer that would take more than an account has available. The
// reservations of calls and purchases prevent it; this is the last check, in the transaction
// itself.
var ErrShort = fault.New(fault.InsufficientBalance, "the balance does not suffice")

// Book writes a transfer with the entries of users. It returns false, and changes
// nothing, when a transfer with this id exists: it has happened. It refuses, as
// ErrShort, to take from a user more than is available, except for Calls, which
// the settler clips before.
func Book(t storage.Txn, now time.Time, x Transfer) (bool, error) {
	if have, err := HasTransfer(t, x.ID); err != nil || have {
		return false, err
	}
	return true, book(t, now, x)
}

// book is Book for a transfer that has not happened.
func book(t storage.Txn, now time.Time, x Transfer) error {
	x.Time = now.UnixMilli()
	legs := x.Legs
	x.Legs = nil
	var sum money.Amount
	for _, leg := range legs {
		if leg.Amount == 0 && leg.Held == 0 {
			continue
		}
		leg.Account = leg.Account.on(now)
		var err error
		if leg.Number, err = enter(t, now, x.Kind, x.ID, leg); err != nil {
			return err
		}
		if !leg.Account.memo() {
			sum += leg.Amount // cannot overflow unnoticed: balances are checked one by one
		}
		x.Legs = append(x.Legs, leg)
	}
	if sum != 0 {
		panic(fmt.Sprintf("ledger: the legs of a %s have the sum %v", x.Kind, sum))
	}
	key := transferKey(x.ID)
	return t.Set(key, x.encode(key), time.Time{})
}

// enter writes the account's new state and, for an account of a user, the entry.
func enter(t storage.Txn, now time.Time, kind Kind, id ID, leg Leg) (number uint64, err error) {
	before, err := ReadState(t, leg.Account)
	if err != nil {
		return 0, err
	}
	after := State{Entries: before.Entries + 1}
	var fits, held bool
	after.Balance, fits = before.Balance.Add(leg.Amount)
	after.Held, held = before.Held.Add(leg.Held)
	switch {
	case (!fits || !held) && leg.Account.system():
		return 0, fault.New(fault.AmountOutOfRange, "what is booked on one day cannot come to so much")
	case !fits || !held:
		return 0, fault.New(fault.AmountOutOfRange, "the account %s cannot hold so much", leg.Account.own())
	case after.Held < 0:
		return 0, fmt.Errorf("ledger: a hold on %s ends for more than is held", leg.Account)
	case leg.Account.kept() && after.Available() < 0 && after.Available() < before.Available():
		return 0, ErrShort
	}
	if !leg.Account.system() {
		e := Entry{Number: after.Entries, Kind: kind, Transfer: id, Amount: leg.Amount, Held: leg.Held, After: after, Time: now}
		if err := t.Set(entryKey(leg.Account, e.Number), e.encode(), time.Time{}); err != nil {
			return 0, err
		}
	}
	return after.Entries, t.Set(accountKey(leg.Account), after.encode(), time.Time{})
}

// HasTransfer reports whether there is a transfer with this id: whether it has
// happened.
func HasTransfer(r storage.Reader, id ID) (bool, error) {
	record, err := r.Get(transferKey(id))
	return record != nil, err
}

// ReadTransfer returns a transfer and whether there is one.
func ReadTransfer(r storage.Reader, id ID) (x Transfer, found bool, err error) {
	key := transferKey(id)
	record, err := r.Get(key)
	if err != nil || record == nil {
		return x, false, err
	}
	if x, err = decodeTransfer(key, record); err != nil {
		return x, true, fmt.Errorf("transfer %v: %w: %w", id, storage.ErrUnreadable, err)
	}
	return x, true, nil
}
