package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Account names an account. Those of a user begin with "u/<user id>/", so that
// all accounts of a user lie together; system accounts begin with "s/".
type Account string

// The system accounts. Each is the other side of what users have. A
// transfer enters them by the UTC day, as s/spent/20261120, so that no sum over
// the years leaves the range of an amount.
const (
	Spent    Account = "s/spent"    // what calls and tasks have cost
	Sold     Account = "s/sold"     // what was paid for plans
	Granted  Account = "s/granted"  // the quota that plans gave; below zero
	Operator Account = "s/operator" // what operators have credited and debited; below zero
)

// Paid is the account of a payment service: below zero by what it has taken
// from people for us.
func Paid(provider string) Account { return Account("s/paid/" + provider) }

// ownPrefix is what the accounts of a user begin with.
func ownPrefix(user string) Account { return Account(userPrefix + user + "/") }

// userPrefix is what the accounts of users begin with.
const userPrefix = "u/"

// Wallet is a user's prepaid money.
func Wallet(user string) Account { return ownPrefix(user) + "wallet" }

// Quota is what one period of a subscription has to spend.
func Quota(user string, subscription int64, start time.Time) Account {
	var room [96]byte // few are longer
	name := append(append(append(room[:0], userPrefix...), user...), "/quota/"...)
	name = append(strconv.AppendInt(name, subscription, 10), '/')
	return Account(strconv.AppendInt(name, start.Unix(), 10))
}

// Receivable is what a user owes: below zero after a refund or a dispute of
// money that was spent already.
func Receivable(user string) Account { return ownPrefix(user) + "receivable" }

// budgetAccount counts what was spent under a budget in one period.
func budgetAccount(user, scope string, start int64) Account {
	return ownPrefix(user) + Account("budget/"+scope+"/"+strconv.FormatInt(start, 10))
}

// Owner returns the id of the user whose account this is; empty for a system account.
func (a Account) Owner() string {
	if rest, ok := strings.CutPrefix(string(a), userPrefix); ok {
		owner, _, _ := strings.Cut(rest, "/")
		return owner
	}
	return ""
}

// system reports whether it is a system account. Nobody reads such an account
// line by line, and a purchase changes two of them: a leg changes its state, and
// is itself the record of that. So system accounts have states and legs; users have
// entries, too.
func (a Account) system() bool { return strings.HasPrefix(string(a), "s/") }

// on returns the account that takes the legs of a moment: for a system
// account that of the day, for any other itself.
func (a Account) on(t time.Time) Account {
	if !a.system() {
		return a
	}
	return a + "/" + Account(DayOf(t))
}

// Family returns the system account that this one is a day of; any other
// account is its own.
func (a Account) Family() Account {
	if !a.system() {
		return a
	}
	return a[:strings.LastIndexByte(string(a), '/')]
}

// own returns the account's name among those of its user: "wallet".
func (a Account) own() string {
	if rest, ok := strings.CutPrefix(string(a), userPrefix); ok {
		if _, own, ok := strings.Cut(rest, "/"); ok {
			return own
		}
	}
	return string(a)
}

// memo reports whether the account only counts: no money is in it.
func (a Account) memo() bool { return a.Owner() != "" && strings.HasPrefix(a.own(), "budget/") }

// kept reports whether the account holds money of a user, which never falls below
// zero.
func (a Account) kept() bool {
	return a.Owner() != "" && (a.own() == "wallet" || strings.HasPrefix(a.own(), "quota/"))
}

// State is an account at a moment.
type State struct {
	Balance money.Amount // what came in, less what went out
	Held    money.Amount // of the balance, what open holds set aside
	Entries uint64       // how many legs led here: for an account of a user, as many entries
}

// Available is what may be spent.
func (s State) Available() money.Amount { return s.Balance - s.Held }

// Keys of the store:
//
//	acct/<account>               state of an account
//	entry/<account>\0<^number>   its entries, newest first; of accounts of users
//	xfer/<id>                    transfers
const (
	accountPrefix  = "acct/"
	entryPrefix    = "entry/"
	transferPrefix = "xfer/"
)

func accountKey(a Account) []byte { return []byte(accountPrefix + string(a)) }

func entryKey(a Account, number uint64) []byte {
	key := make([]byte, 0, len(entryPrefix)+len(a)+9)
	key = append(append(append(key, entryPrefix...), a...), 0)
	return binary.BigEndian.AppendUint64(key, math.MaxUint64-number)
}

// layout is the first byte of accounts and entries, which are fixed binary
// layouts: a change of theirs raises it.
const layout = 1

const stateSize = 1 + 3*8

func (s State) encode() []byte {
	b := make([]byte, 0, stateSize)
	b = append(b, layout)
	b = binary.BigEndian.AppendUint64(b, uint64(s.Balance))
	b = binary.BigEndian.AppendUint64(b, uint64(s.Held))
	return binary.BigEndian.AppendUint64(b, s.Entries)
}

func decodeState(b []byte) (State, error) {
	if len(b) != stateSize || b[0] != layout {
		return State{}, fmt.Errorf("an account record of %d bytes cannot be read by this build", len(b))
	}
	return State{
		Balance: money.Amount(binary.BigEndian.Uint64(b[1:])),
		Held:    money.Amount(binary.BigEndian.Uint64(b[9:])),
		Entries: binary.BigEndian.Uint64(b[17:]),
	}, nil
}

// ReadState returns the state of an account; the zero State when nothing has
// touched it.
func ReadState(r storage.Reader, a Account) (State, error) {
	record, err := r.Get(accountKey(a))
	if err != nil || record == nil {
		return State{}, err
	}
	s, err := decodeState(record)
	if err != nil {
		return s, fmt.Errorf("account %s: %w", a, err)
	}
	return s, nil
}

// Entry is one line of the book of a user's account. System accounts have
// none.
type Entry struct {
	Number   uint64 // from 1, without gaps
	Kind     Kind
	Transfer ID
	Amount   money.Amount // the change of the balance
	Held     money.Amount // the change of what is held
	After    State
	Time     time.Time // to the millisecond
}

const entrySize = 2 + len(ID{}) + 5*8

func (e Entry) encode() []byte {
	b := make([]byte, 0, entrySize)
	b = append(b, layout, kindCodes[e.Kind])
	b = append(b, e.Transfer[:]...)
	for _, n := range [...]int64{int64(e.Amount), int64(e.Held), int64(e.After.Balance), int64(e.After.Held), e.Time.UnixMilli()} {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// decodeEntry reads an entry from its key and its value.
func decodeEntry(key, b []byte) (e Entry, a Account, err error) {
	name := key[len(entryPrefix):]
	if len(name) < 9 || name[len(name)-9] != 0 || len(b) != entrySize || b[0] != layout {
		return e, a, fmt.Errorf("entry %q: %w", key, storage.ErrUnreadable)
	}
	a = Account(name[:len(name)-9])
	e.Number = math.MaxUint64 - binary.BigEndian.Uint64(name[len(name)-8:])
	var known bool
	if e.Kind, known = kindOf(b[1]); !known {
		return e, a, fmt.Errorf("the entry at %q is of a kind that this build does not know", key)
	}
	copy(e.Transfer[:], b[2:])
	field := func(i int) int64 { return int64(binary.BigEndian.Uint64(b[2+len(e.Transfer)+8*i:])) }
	e.Amount, e.Held = money.Amount(field(0)), money.Amount(field(1))
	e.After = State{Balance: money.Amount(field(2)), Held: money.Amount(field(3)), Entries: e.Number}
	e.Time = time.UnixMilli(field(4)).UTC()
	return e, a, nil
}

// ScanEntries calls fn for the entries of an account, newest first, from the
// number before on, until fn returns false. Zero begins at the newest.
func ScanEntries(r storage.Reader, a Account, before uint64, fn func(Entry) bool) error {
	lo, hi := entryKey(a, math.MaxUint64), storage.PrefixEnd(append([]byte(entryPrefix+string(a)), 0))
	if before > 0 {
		lo = entryKey(a, before-1)
	}
	var bad error
	err := r.Scan(lo, hi, func(key, val []byte) bool {
		var e Entry
		if e, _, bad = decodeEntry(key, val); bad != nil {
			return false
		}
		return fn(e)
	})
	if err == nil {
		err = bad
	}
	return err
}

// EntryInfo is an entry as people read it, with what its transfer was for.
type EntryInfo struct {
	Number    uint64       `json:"number"` // from 1, without gaps
	Time      int64        `json:"time"`   // Unix seconds
	Kind      Kind         `json:"kind"`
	Amount    money.Amount `json:"amount"`         // the change of the balance
	Held      money.Amount `json:"held,omitempty"` // the change of what is held
	Balance   money.Amount `json:"balance"`        // after it
	Transfer  ID           `json:"transfer_id"`
	Reference string       `json:"reference,omitempty"`
	Reason    string       `json:"reason,omitempty"` // an operator's
	Count     int          `json:"count,omitempty"`  // of settlements, for calls
}

// Entries returns the entries of an account, newest first, without the first skip of
// them, and how many there are in all.
func (l *Ledger) Entries(ctx context.Context, a Account, skip, limit int64) (lines []EntryInfo, total int64, err error) {
	lines = []EntryInfo{}
	err = l.store.View(ctx, func(r storage.Reader) error {
		state, err := ReadState(r, a)
		if total = int64(state.Entries); err != nil || skip >= total {
			return err
		}
		var bad error
		err = ScanEntries(r, a, uint64(total-skip+1), func(e Entry) bool {
			if int64(len(lines)) == limit {
				return false
			}
			var x Transfer
			if x, _, bad = ReadTransfer(r, e.Transfer); bad != nil {
				return false
			}
			lines = append(lines, EntryInfo{
				Number: e.Number, Time: e.Time.Unix(), Kind: e.Kind, Amount: e.Amount, Held: e.Held,
				Balance: e.After.Balance, Transfer: e.Transfer, Reference: x.Reference, Reason: x.Reason, Count: x.Count,
			})
			return true
		})
		if err == nil {
			err = bad
		}
		return err
	})
	return lines, total, fault.OfStore(err)
}
