package ledger

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"

	"github.com/caddy-modelgate/modelgate/money"
)

// systemAccounts are the system accounts, each with what the legs of all transfers
// come to on it. There is one for each kind and day.
type systemAccounts struct {
	seed     maphash.Seed
	accounts map[Account]*systemAccount
}

// systemAccount is a system account as its record has it, and as its legs
// do.
type systemAccount struct {
	met   bool   // among accounts; what is wrong with its record was told
	state *State // as its record says; nil when there is none that can be read

	balance, held sum // what its legs come to
	legs          numbering
}

func newSystemAccounts() *systemAccounts {
	return &systemAccounts{seed: maphash.MakeSeed(), accounts: make(map[Account]*systemAccount)}
}

// of returns a system account.
func (h *systemAccounts) of(a Account) *systemAccount {
	account := h.accounts[a]
	if account == nil {
		account = new(systemAccount)
		h.accounts[a] = account
	}
	return account
}

// met returns a system account that has a record or an entry.
func (h *systemAccounts) met(a Account) *systemAccount {
	account := h.of(a)
	account.met = true
	return account
}

// leg counts a leg.
func (h *systemAccounts) leg(leg Leg) {
	account := h.of(leg.Account)
	account.balance.add(leg.Amount)
	account.held.add(leg.Held)
	account.legs.add(h.seed, leg.Number)
}

// numbering reports whether numbers are those from one on, each once, and keeps none
// of them: the sum of their hashes must be that of those.
type numbering struct{ count, greatest, hashes uint64 }

func (n *numbering) add(seed maphash.Seed, number uint64) {
	n.count++
	n.greatest = max(n.greatest, number)
	n.hashes += hashOf(seed, number)
}

// whole reports whether the numbers that were added are those from one to their
// count.
func (n *numbering) whole(seed maphash.Seed) bool {
	var hashes uint64
	for number := range n.count {
		hashes += hashOf(seed, number+1)
	}
	return hashes == n.hashes
}

func hashOf(seed maphash.Seed, number uint64) uint64 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], number)
	return maphash.Bytes(seed, b[:])
}

// scanSystemAccounts goes through the accounts with names in [from, to), which are of
// no user; an empty to is the end.
func (v *verification) scanSystemAccounts(from, to string) error {
	b := newBooks("")
	states, entries := newCursor(v.Reader, accountPrefix, from, to), newCursor(v.Reader, entryPrefix, from, to)
	return v.fold(states, entries, b)
}

// checkSystemLegs compares the system accounts with the legs of all transfers.
func (v *verification) checkSystemLegs() error {
	for _, name := range slices.Sorted(maps.Keys(v.system.accounts)) {
		a, where := v.system.accounts[name], "account "+string(name)
		switch {
		case !a.met:
			v.tell(where, "transfers change it, but it has no record")
		case a.state != nil:
			v.checkSystemState(where, a)
		}
		if (a.state == nil || a.state.Entries == a.legs.count) && !a.legs.whole(v.system.seed) {
			v.tell(where, "the numbers of its legs are not those from 1 to %d, each once: the greatest is %d", a.legs.count, a.legs.greatest)
		}
	}
	return nil
}

// checkSystemState compares the record of an account with its legs.
func (v *verification) checkSystemState(where string, a *systemAccount) {
	if a.state.Entries != a.legs.count {
		v.tell(where, "its count of legs is %d, transfers have %d", a.state.Entries, a.legs.count)
	} else if a.legs.count == 0 {
		v.tell(where, "no transfer changes it")
	}
	balance, held := a.balance, a.held
	balance.take(a.state.Balance)
	held.take(a.state.Held)
	if balance.zero() && held.zero() {
		return
	}
	have := a.balance.String()
	if !a.held.zero() {
		have = fmt.Sprintf("%v with %v held", &a.balance, &a.held)
	}
	v.tell(where, "it has %s, its legs come to %s", funds(*a.state), have)
}

// sum adds up amounts with a range that never overflows, so that a sum is zero only if the amounts
// are.
type sum struct{ high, low int64 } // of which high counts by lowUnit

const lowUnit = 1 << 32

func (s *sum) add(a money.Amount) {
	s.high += int64(a) >> 32
	s.low += int64(a) & (lowUnit - 1)
}

// take is add of the amount's opposite, which need not be in the range of amounts.
func (s *sum) take(a money.Amount) {
	s.high -= int64(a) >> 32
	s.low -= int64(a) & (lowUnit - 1)
}

func (s *sum) zero() bool { return s.low%lowUnit == 0 && s.high == -s.low/lowUnit }

// String writes the sum, as far as an amount can be so much.
func (s *sum) String() string {
	high := s.high + s.low/lowUnit
	if high != int64(int32(high)) {
		return "more than an amount can be"
	}
	return money.Amount(high<<32 + s.low%lowUnit).String()
}
