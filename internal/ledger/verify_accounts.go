package ledger

import (
	"encoding/binary"
	"fmt"
	"math"
)

// entryTail is what follows the account's name in the key of an entry: a zero
// byte and the number.
const entryTail = 1 + 8

// fold rebuilds the accounts of one owner from their entries, and gathers in the owner's
// books what other records must say too. Both cursors stand on the first record of the owner.
// System accounts have no entries.
func (v *verification) fold(states, entries *cursor, owner *books) error {
	for {
		account, more, err := v.nextAccount(states, entries)
		if err != nil || !more || account.Owner() != owner.user {
			return err
		}
		v.Accounts++
		f := folding{verification: v, account: account, owner: owner}
		if account.system() {
			f.system = v.system.met(account)
		}
		if err := f.begin(states); err != nil {
			return err
		}
		for {
			have, more, err := v.entryAccount(entries)
			if err != nil {
				return err
			}
			if !more || have != account {
				break
			}
			key, val, err := entries.peek()
			if err != nil {
				return err
			}
			f.entry(key, val)
			entries.advance()
		}
		f.end()
	}
}

// nextAccount returns the first account of which there is a state or an entry.
func (v *verification) nextAccount(states, entries *cursor) (Account, bool, error) {
	state, some, err := states.rest()
	if err != nil {
		return "", false, err
	}
	entry, more, err := v.entryAccount(entries)
	if err != nil || some && (!more || state <= string(entry)) {
		return Account(state), some, err
	}
	return entry, more, nil
}

// entryAccount returns the account of the entry that the cursor stands on. It
// goes past what is no entry.
func (v *verification) entryAccount(entries *cursor) (Account, bool, error) {
	for {
		rest, more, err := entries.rest()
		if err != nil || !more {
			return "", false, err
		}
		if end := len(rest) - entryTail; end >= 0 && rest[end] == 0 {
			return Account(rest[:end]), true, nil
		}
		v.tell("the entries", "%q is not the key of one", entries.prefix+rest)
		entries.advance()
	}
}

// folding is an account that is being rebuilt, from its last entry to its first.
type folding struct {
	*verification
	account Account
	owner   *books
	system  *systemAccount // nil for any other

	state  *State // as its record says; nil when that cannot be read
	last   uint64 // the number of the entry before this; zero when there was none
	next   uint64 // the number that the next entry must have; any before the first without a state
	after  *State // what the next entry must lead to; nil when that cannot be told
	broken [3]breach
}

func (f *folding) tell(what string, args ...any) {
	f.verification.tell("account "+string(f.account), what, args...)
}

// begin reads the account's record, if there is one.
func (f *folding) begin(states *cursor) error {
	name, more, err := states.rest()
	if err != nil {
		return err
	}
	if !more || name != string(f.account) {
		f.tell("it has entries, but no record")
		return nil
	}
	_, val, err := states.peek()
	if err != nil {
		return err
	}
	states.advance()
	state, err := decodeState(val)
	if err != nil {
		f.tell("%v", err)
		return nil
	}
	f.state, f.after, f.next = &state, &state, state.Entries
	if !f.account.memo() {
		f.sum.add(state.Balance)
	}
	if f.owner.user == "" && state.Held != 0 {
		f.tell("%v is held, and nothing is ever held on a system account", state.Held)
	}
	if f.system != nil {
		f.system.state = &state
	}
	return nil
}

// entry takes the next entry, an older one each time.
func (f *folding) entry(key, val []byte) {
	f.Entries++
	number := math.MaxUint64 - binary.BigEndian.Uint64(key[len(key)-8:])
	if f.system != nil {
		f.tell("entry %d is there, and a system account has none", number)
		return
	}
	switch {
	case f.last == 0 && f.state == nil:
	case number > f.next:
		f.tell("entry %d is there, but it counts only %d", number, f.next)
		f.after = nil
	case number < f.next:
		f.missing(number+1, f.next)
		f.after = nil
	}
	e, _, err := decodeEntry(key, val)
	if err == nil {
		f.follow(e)
	} else {
		f.tell("entry %d cannot be read by this build", number)
		f.after = nil
	}
	f.last, f.next = number, number-1
}

func (f *folding) follow(e Entry) {
	f.count(f.account, e, +1)
	if e.Kind == Calls && f.account.kept() {
		f.owner.taken(f.account, e, f.paidFrom)
		if !e.Transfer.before(f.filteredFrom) {
			f.filter.add(f.account, e.Transfer)
		}
	}
	if f.after != nil && (e.After.Balance != f.after.Balance || e.After.Held != f.after.Held) {
		if f.last == 0 {
			f.tell("it has %s, its last entry left %s", funds(*f.after), funds(e.After))
		} else {
			f.tell("entry %d left %s, entry %d began with %s", e.Number, funds(e.After), f.last, funds(*f.after))
		}
	}
	for i, rule := range rules {
		if rule.concerns(f.account) && rule.broken(e.After) {
			f.broken[i] = breach{e.Number, e.After, f.broken[i].times + 1}
		}
	}
	f.after = &State{Balance: e.After.Balance - e.Amount, Held: e.After.Held - e.Held}
}

// end looks whether the last entry that came is the first of all.
func (f *folding) end() {
	switch {
	case f.system != nil:
		return
	case f.last == 0 && f.next == 0 && f.state != nil:
		f.tell("it has no entries")
	case f.next > 0:
		f.missing(1, f.next)
	case f.after != nil && *f.after != State{}:
		f.tell("its first entry began with %s", funds(*f.after))
	}
	for i, b := range f.broken {
		if b.times > 0 {
			f.tell("%s: entry %d left %s, the first of %d that did so", rules[i].what, b.number, funds(b.after), b.times)
		}
	}
}

// missing tells of entries that should be there.
func (f *folding) missing(from, to uint64) {
	if from == to {
		f.tell("entry %d is missing", from)
		return
	}
	f.tell("the entries %d to %d are missing", from, to)
}

// rules are what holds for an account after every entry.
var rules = [...]struct {
	what     string
	concerns func(Account) bool
	broken   func(State) bool
}{
	{"less than nothing is available", Account.kept, func(s State) bool { return s.Available() < 0 }},
	{"a receivable is above zero", Account.receivable, func(s State) bool { return s.Balance > 0 }},
	{"less than nothing is held", func(Account) bool { return true }, func(s State) bool { return s.Held < 0 }},
}

// breach is where an account broke a rule first.
type breach struct {
	number uint64
	after  State
	times  int
}

func (a Account) receivable() bool { return a.Owner() != "" && a.own() == "receivable" }

// funds writes what an account has.
func funds(s State) string {
	if s.Held == 0 {
		return s.Balance.String()
	}
	return fmt.Sprintf("%v with %v held", s.Balance, s.Held)
}
