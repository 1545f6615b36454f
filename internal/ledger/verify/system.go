package verify

import (
	"encoding/binary"
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

// systemAccount is a system account as its record has it, and as its legs
// do.
type systemAccount struct {
	met   bool           // among accounts; what is wrong with its record was told
	state *journal.State // as its record says; nil when there is none that can be read

	balance, held sum // what its legs come to
	legs          numbering
}

// systemAccount returns a system account, made if it was not met before.
func (v *verification) systemAccount(a journal.Account) *systemAccount {
	account := v.system[a]
	if account == nil {
		account = new(systemAccount)
		v.system[a] = account
	}
	return account
}

// leg counts a leg.
func (a *systemAccount) leg(seed maphash.Seed, leg journal.Leg) {
	a.balance.add(leg.Amount)
	a.held.add(leg.Held)
	a.legs.add(seed, leg.Number)
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

// systemAccounts goes through the accounts with names in [from, to), which are of
// no user; an empty to is the end.
func (v *verification) systemAccounts(from, to string) {
	v.fold(v.cursor(journal.AccountPrefix, from, to), v.cursor(journal.EntryPrefix, from, to), newTotals(""))
}

// checkSystemLegs compares the system accounts with the legs of all transfers.
func (v *verification) checkSystemLegs() {
	for _, name := range slices.Sorted(maps.Keys(v.system)) {
		a, where := v.system[name], "account "+string(name)
		switch {
		case !a.met:
			v.report(where, "transfers change it, but it has no record")
		case a.state != nil:
			v.checkSystemState(where, a)
		}
		if (a.state == nil || a.state.Entries == a.legs.count) && !a.legs.whole(v.seed) {
			v.report(where, "the numbers of its legs are not those from 1 to %d, each once: the greatest is %d", a.legs.count, a.legs.greatest)
		}
	}
}

// checkSystemState compares the record of an account with its legs.
func (v *verification) checkSystemState(where string, a *systemAccount) {
	if a.state.Entries != a.legs.count {
		v.report(where, "its count of legs is %d, transfers have %d", a.state.Entries, a.legs.count)
	} else if a.legs.count == 0 {
		v.report(where, "no transfer changes it")
	}
	if a.balance != sumOf(a.state.Balance) || a.held != sumOf(a.state.Held) {
		v.report(where, "it has %s, its legs come to %s", funds(a.state.Balance, a.state.Held), funds(a.balance, a.held))
	}
}

// sum adds up amounts in 128 bits, so that it never overflows.
type sum struct {
	high int64
	low  uint64
}

func sumOf(a money.Amount) sum { return sum{int64(a) >> 63, uint64(a)} }

func (s *sum) add(a money.Amount) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, uint64(a), 0)
	s.high += int64(a)>>63 + int64(carry)
}

// String writes the sum, as far as an amount can be so much.
func (s sum) String() string {
	if a := money.Amount(s.low); sumOf(a) == s {
		return a.String()
	}
	return "more than an amount can be"
}
