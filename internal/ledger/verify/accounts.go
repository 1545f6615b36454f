package verify

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// entryTail is what follows the account's name in the key of an entry: a zero
// byte and the number.
const entryTail = 1 + 8

// fold rebuilds the accounts of one owner from their entries, and gathers in the owner's
// totals what other records must agree with. Both cursors stand on the first record of the owner.
// System accounts have no entries.
func (v *verification) fold(states, entries *cursor, owner *totals) {
	for {
		account, more := v.nextAccount(states, entries)
		if !more || account.Owner() != owner.user {
			return
		}
		v.Accounts++
		f := folding{verification: v, account: account, owner: owner}
		if account.System() {
			f.system = v.systemAccount(account)
			f.system.met = true
		}
		f.begin(states)
		for have, more := v.entryAccount(entries); more && have == account; have, more = v.entryAccount(entries) {
			f.entry(entries.next())
		}
		f.end()
	}
}

// nextAccount returns the first account of which there is a state or an entry.
func (v *verification) nextAccount(states, entries *cursor) (journal.Account, bool) {
	state, some := states.rest()
	entry, more := v.entryAccount(entries)
	if some && (!more || state <= string(entry)) {
		return journal.Account(state), true
	}
	return entry, more
}

// entryAccount returns the account of the entry that the cursor stands on. It
// goes past what is no entry.
func (v *verification) entryAccount(entries *cursor) (journal.Account, bool) {
	for {
		rest, more := entries.rest()
		if !more {
			return "", false
		}
		if end := len(rest) - entryTail; end >= 0 && rest[end] == 0 {
			return journal.Account(rest[:end]), true
		}
		v.report("the entries", "%q is not the key of one", entries.prefix+rest)
		entries.next()
	}
}

// folding is an account that is being rebuilt, from its last entry to its first.
type folding struct {
	*verification
	account journal.Account
	owner   *totals
	system  *systemAccount // nil for any other

	state  *journal.State // as its record says; nil when that cannot be read
	last   uint64         // the number of the entry before this; zero when there was none
	next   uint64         // the number that the next entry must have; any before the first without a state
	after  *journal.State // what the next entry must lead to; nil when that cannot be told
	broken [3]breach
}

func (f *folding) report(what string, args ...any) {
	f.verification.report("account "+string(f.account), what, args...)
}

// begin reads the account's record, if there is one.
func (f *folding) begin(states *cursor) {
	if name, more := states.rest(); !more || name != string(f.account) {
		f.report("it has entries, but no record")
		return
	}
	_, val := states.next()
	state, err := journal.DecodeState(val)
	if err != nil {
		f.report("%v", err)
		return
	}
	f.state, f.after, f.next = &state, &state, state.Entries
	if !f.account.Memo() {
		f.sum.add(state.Balance)
	}
	if f.owner.user == "" && state.Held != 0 {
		f.report("%v is held, and nothing is ever held on a system account", state.Held)
	}
	if f.system != nil {
		f.system.state = &state
	}
}

// entry takes the next entry, an older one each time.
func (f *folding) entry(key, val []byte) {
	f.Entries++
	number := math.MaxUint64 - binary.BigEndian.Uint64(key[len(key)-8:])
	if f.system != nil {
		f.report("entry %d is there, and a system account has none", number)
		return
	}
	switch {
	case f.last == 0 && f.state == nil:
	case number > f.next:
		f.report("entry %d is there, but it counts only %d", number, f.next)
		f.after = nil
	case number < f.next:
		f.missing(number+1, f.next)
		f.after = nil
	}
	e, _, err := journal.DecodeEntry(key, val)
	if err == nil {
		f.follow(e)
	} else {
		f.report("entry %d cannot be read by this build", number)
		f.after = nil
	}
	f.last, f.next = number, number-1
}

func (f *folding) follow(e journal.Entry) {
	f.count(f.account, e, +1)
	if e.Kind == journal.Calls && f.account.Kept() {
		f.owner.addEntry(f.account, e, f.paidFrom)
		if !e.Transfer.Before(f.filteredFrom) {
			f.filter.add(f.account, e.Transfer)
		}
	}
	if f.after != nil && (e.After.Balance != f.after.Balance || e.After.Held != f.after.Held) {
		if f.last == 0 {
			f.report("it has %s, its last entry left %s", funds(f.after.Balance, f.after.Held), funds(e.After.Balance, e.After.Held))
		} else {
			f.report("entry %d left %s, entry %d began with %s", e.Number, funds(e.After.Balance, e.After.Held), f.last, funds(f.after.Balance, f.after.Held))
		}
	}
	for i, rule := range rules {
		if rule.concerns(f.account) && rule.broken(e.After) {
			f.broken[i] = breach{e.Number, e.After, f.broken[i].times + 1}
		}
	}
	f.after = &journal.State{Balance: e.After.Balance - e.Amount, Held: e.After.Held - e.Held}
}

// end looks whether the last entry that came is the first of all.
func (f *folding) end() {
	switch {
	case f.system != nil:
		return
	case f.last == 0 && f.next == 0 && f.state != nil:
		f.report("it has no entries")
	case f.next > 0:
		f.missing(1, f.next)
	case f.after != nil && *f.after != journal.State{}:
		f.report("its first entry began with %s", funds(f.after.Balance, f.after.Held))
	}
	for i, b := range f.broken {
		if b.times > 0 {
			f.report("%s: entry %d left %s, the first of %d that did so", rules[i].what, b.number, funds(b.after.Balance, b.after.Held), b.times)
		}
	}
}

// missing reports entries that should be there.
func (f *folding) missing(from, to uint64) {
	if from == to {
		f.report("entry %d is missing", from)
		return
	}
	f.report("the entries %d to %d are missing", from, to)
}

// rules are what holds for an account after every entry.
var rules = [...]struct {
	what     string
	concerns func(journal.Account) bool
	broken   func(journal.State) bool
}{
	{"less than nothing is available", journal.Account.Kept, func(s journal.State) bool { return s.Available() < 0 }},
	{"a receivable is above zero", isReceivable, func(s journal.State) bool { return s.Balance > 0 }},
	{"less than nothing is held", func(journal.Account) bool { return true }, func(s journal.State) bool { return s.Held < 0 }},
}

// breach is where an account broke a rule first.
type breach struct {
	number uint64
	after  journal.State
	times  int
}

func isReceivable(a journal.Account) bool {
	return a.Owner() != "" && a == journal.Receivable(a.Owner())
}

// funds writes what an account has, or what changes of it.
func funds[Sum comparable](balance, held Sum) string {
	var none Sum
	if held == none {
		return fmt.Sprint(balance)
	}
	return fmt.Sprintf("%v with %v held", balance, held)
}
