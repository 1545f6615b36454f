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

// systemAccount is a system account with the state of its record and the sums of its legs.
type systemAccount struct {
	found bool           // its record or an entry exists; errors of the record are reported
	state *journal.State // of its record; nil if that is missing or cannot be read

	balance, held sum // sums of its legs
	legs          numbering
}

// systemAccount returns a system account, and creates it if it was not known.
func (v *verification) systemAccount(a journal.Account) *systemAccount {
	account := v.system[a]
	if account == nil {
		account = new(systemAccount)
		v.system[a] = account
	}
	return account
}

// leg adds a leg.
func (a *systemAccount) leg(seed maphash.Seed, leg journal.Leg) {
	a.balance.add(leg.Amount)
	a.held.add(leg.Held)
	a.legs.add(seed, leg.Number)
}

// numbering checks that numbers are 1, 2, 3 and so on, each once, without storing them. It
// compares the sum of their hashes.
type numbering struct{ count, highest, hashes uint64 }

func (n *numbering) add(seed maphash.Seed, number uint64) {
	n.count++
	n.highest = max(n.highest, number)
	n.hashes += hashOf(seed, number)
}

// complete reports whether the added numbers are 1 to their count, each once.
func (n *numbering) complete(seed maphash.Seed) bool {
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

// systemAccounts checks the records of the system accounts with names in [from, to). An empty to
// is an open end.
func (v *verification) systemAccounts(from, to string) {
	v.rebuildAccounts(v.cursor(journal.AccountPrefix, from, to), v.cursor(journal.EntryPrefix, from, to), newTotals(""))
}

// checkSystemLegs compares the system accounts with the legs of all transfers.
func (v *verification) checkSystemLegs() {
	for _, name := range slices.Sorted(maps.Keys(v.system)) {
		a, where := v.system[name], "account "+string(name)
		switch {
		case !a.found:
			v.report(where, "transfers change it, but it has no record")
		case a.state != nil:
			v.checkSystemState(where, a)
		}
		if (a.state == nil || a.state.Entries == a.legs.count) && !a.legs.complete(v.seed) {
			v.report(where, "the numbers of its legs are not 1 to %d, each once: the highest is %d", a.legs.count, a.legs.highest)
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
		v.report(where, "it has %s, the sum of its legs is %s", funds(a.state.Balance, a.state.Held), funds(a.balance, a.held))
	}
}

// sum is a sum of amounts in 128 bits, which never overflows.
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

// String returns the sum as an amount, or a text if it is out of the range of an amount.
func (s sum) String() string {
	if a := money.Amount(s.low); sumOf(a) == s {
		return a.String()
	}
	return "out of the range of an amount"
}
