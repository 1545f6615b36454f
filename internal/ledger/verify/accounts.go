package verify

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// entryTail is the length of the end of an entry's key after the account: a zero byte and the
// number.
const entryTail = 1 + 8

// rebuildAccounts rebuilds the accounts of one owner from their entries, and adds them to the
// owner's totals. Both cursors must be at the first record of the owner. System accounts have no
// entries.
func (v *verification) rebuildAccounts(states, entries *cursor, owner *totals) {
	for {
		account, more := v.nextAccount(states, entries)
		if !more || account.Owner() != owner.user {
			return
		}
		v.Accounts++
		f := rebuild{verification: v, account: account, owner: owner}
		if account.System() {
			f.system = v.systemAccount(account)
			f.system.found = true
		}
		f.begin(states)
		for have, more := v.entryAccount(entries); more && have == account; have, more = v.entryAccount(entries) {
			f.entry(entries.next())
		}
		f.end()
	}
}

// nextAccount returns the next account with a state or an entry.
func (v *verification) nextAccount(states, entries *cursor) (journal.Account, bool) {
	state, some := states.rest()
	entry, more := v.entryAccount(entries)
	if some && (!more || state <= string(entry)) {
		return journal.Account(state), true
	}
	return entry, more
}

// entryAccount returns the account of the entry at the cursor. It reports and skips keys that are
// not those of entries.
func (v *verification) entryAccount(entries *cursor) (journal.Account, bool) {
	for {
		rest, more := entries.rest()
		if !more {
			return "", false
		}
		if end := len(rest) - entryTail; end >= 0 && rest[end] == 0 {
			return journal.Account(rest[:end]), true
		}
		v.report("the entries", "%q is not the key of an entry", entries.prefix+rest)
		entries.next()
	}
}

// rebuild is an account that is being rebuilt, from its last entry to its first.
type rebuild struct {
	*verification
	account journal.Account
	owner   *totals
	system  *systemAccount // nil for the account of a user

	state  *journal.State // of its record; nil if that cannot be read
	last   uint64         // number of the previous entry; zero if there was none
	next   uint64         // number that the next entry must have; without a state, any for the first
	after  *journal.State // state that the next entry must lead to; nil if unknown
	broken [3]violation
}

func (f *rebuild) report(what string, args ...any) {
	f.verification.report("account "+string(f.account), what, args...)
}

// begin reads the account's record, if there is one.
func (f *rebuild) begin(states *cursor) {
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
	f.reserved(state)
	if !f.account.Memo() {
		f.sum.add(state.Balance)
	}
	if f.owner.user == "" && (state.Held != 0 || state.Reserved != 0) {
		f.report("%v is held, but a system account has no holds", state.Held+state.Reserved)
	}
	if f.system != nil {
		f.system.state = &state
	}
}

// reserved checks that the reserved amount is the sum of the holds of calls, and that the account
// covers it.
func (f *rebuild) reserved(state journal.State) {
	if f.owner.user == "" {
		return
	}
	held := f.owner.reserved[f.account]
	delete(f.owner.reserved, f.account)
	switch {
	case state.Reserved != held:
		f.report("%v is reserved, but the holds of calls are %v", state.Reserved, held)
	case held > 0 && f.account.NonNegative() && state.Available() < 0:
		f.report("the holds of calls are %v, more than it has", held)
	}
}

// entry checks the next entry. Entries come newest first.
func (f *rebuild) entry(key, val []byte) {
	f.Entries++
	number := math.MaxUint64 - binary.BigEndian.Uint64(key[len(key)-8:])
	if f.system != nil {
		f.report("entry %d exists, but a system account has no entries", number)
		return
	}
	switch {
	case f.last == 0 && f.state == nil:
	case number > f.next:
		f.report("entry %d exists, but the record counts only %d", number, f.next)
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

func (f *rebuild) follow(e journal.Entry) {
	f.count(f.account, e, +1)
	if e.Kind == journal.Calls && f.account.NonNegative() {
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
			f.broken[i] = violation{e.Number, e.After, f.broken[i].times + 1}
		}
	}
	f.after = &journal.State{Balance: e.After.Balance - e.Amount, Held: e.After.Held - e.Held}
}

// end checks that the last entry read is the first of the account, and reports broken rules.
func (f *rebuild) end() {
	switch {
	case f.system != nil:
		return
	case f.last == 0 && f.next == 0 && f.state != nil && f.state.Reserved != 0: // a call has reserved before any transfer
	case f.last == 0 && f.next == 0 && f.state != nil:
		f.report("it has no entries")
	case f.next > 0:
		f.missing(1, f.next)
	case f.after != nil && *f.after != journal.State{}:
		f.report("its first entry began with %s", funds(f.after.Balance, f.after.Held))
	}
	for i, b := range f.broken {
		if b.times > 0 {
			f.report("%s: entry %d left %s, the first of %d such entries", rules[i].what, b.number, funds(b.after.Balance, b.after.Held), b.times)
		}
	}
}

// missing reports entries that should be there.
func (f *rebuild) missing(from, to uint64) {
	if from == to {
		f.report("entry %d is missing", from)
		return
	}
	f.report("the entries %d to %d are missing", from, to)
}

// rules hold for an account after every entry.
var rules = [...]struct {
	what     string
	concerns func(journal.Account) bool
	broken   func(journal.State) bool
}{
	{"the available amount is negative", journal.Account.NonNegative, func(s journal.State) bool { return s.Available() < 0 }},
	{"the receivable is positive", isReceivable, func(s journal.State) bool { return s.Balance > 0 }},
	{"the held amount is negative", func(journal.Account) bool { return true }, func(s journal.State) bool { return s.Held < 0 }},
}

// violation is the oldest entry that broke a rule, and the number of entries that did.
type violation struct {
	number uint64
	after  journal.State
	times  int
}

func isReceivable(a journal.Account) bool {
	return a.Owner() != "" && a == journal.Receivable(a.Owner())
}

// funds formats a balance with its held amount, or the changes of both.
func funds[Sum comparable](balance, held Sum) string {
	var none Sum
	if held == none {
		return fmt.Sprint(balance)
	}
	return fmt.Sprintf("%v with %v held", balance, held)
}
