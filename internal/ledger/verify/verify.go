// Package verify checks that everything that package journal stores agrees. [Verify] rebuilds the
// balances of users from their entries and those of system accounts from the legs of transfers, and
// compares what is written twice. It reads one snapshot, keeps no more than the records of one user
// and the sums of system accounts, and imports nothing of the ledger but package journal.
package verify

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Problem is something in a store that does not add up.
type Problem struct {
	Where string `json:"where"` // what it concerns: "account u/ann/wallet"
	What  string `json:"what"`
}

// Report counts what [Verify] has read.
type Report struct {
	Accounts        int64         `json:"accounts"`
	Entries         int64         `json:"entries"` // that are stored
	Transfers       int64         `json:"transfers"`
	Calls           int64         `json:"calls"`
	Holds           int64         `json:"holds"`
	IdempotencyKeys int64         `json:"claims"`
	Users           int64         `json:"users"`         // with any of these
	Problems        int64         `json:"problem_count"` // those of further checks included
	Took            time.Duration `json:"took_ns"`
}

// Check looks for problems in what another package keeps in the store. r ends
// with an error when the context does that Verify was given.
type Check func(r storage.Reader, problem func(Problem)) error

// Verify rebuilds every balance: of users from their entries, of system accounts from the legs of
// transfers. It compares what is written twice: entries with transfers, holds with held amounts,
// calls with what they have paid, the usage of days with its calls and tasks, and indexes with their
// records. It also checks that each transfer changes only what its kind may. It calls problem for
// each contradiction, then runs the checks. It changes nothing.
//
// r is one snapshot, of a store in use or of a copy. The store says how long calls are kept; a call
// near the end of that time may be missing. The error is that of reading, or of ctx. Verify needs
// memory for the records of one user and for the system accounts of each day, however many entries
// and calls there are.
func Verify(ctx context.Context, r storage.Reader, now time.Time, problem func(Problem), checks ...Check) (Report, error) {
	began := time.Now()
	r = interruptible{ctx, r}
	k, err := journal.ReadKeeping(r)
	unread := err
	if errors.Is(err, storage.ErrUnreadable) {
		k = journal.Keeping{} // any call may be missing
	} else if err != nil {
		return Report{}, err
	}
	from := k.From(now)
	kept := from.Add(min(keptMargin, k.Kept/2))
	v := &verification{
		reader: r, problem: problem,
		paidFrom: journal.FirstTimed(kept), filteredFrom: journal.FirstTimed(from), wholeFrom: journal.DayOf(kept.AddDate(0, 0, 1)),
		entries: multiset.New(), filter: newBloomFilter(), seed: maphash.MakeSeed(), system: make(map[journal.Account]*systemAccount),
	}
	if unread != nil {
		v.report("how long calls are kept", "%v", unread)
	}
	v.accounts()
	v.transfers()
	v.checkSystemLegs()
	v.unmatched()
	v.idempotencyKeys()
	for _, check := range checks {
		if v.err == nil {
			v.err = check(r, v.add)
		}
	}
	v.Took = time.Since(began)
	return v.Report, v.err
}

// keptMargin is how long before the end of their time records of calls are not
// relied on any more: the engine drops them by its own clock.
const keptMargin = 24 * time.Hour

// verification is a Verify under way.
type verification struct {
	Report
	reader       storage.Reader
	err          error // the first read that failed: every read ends after it, and no problem is reported
	problem      func(Problem)
	paidFrom     journal.ID     // the settlements from here on are in records of calls
	filteredFrom journal.ID     // those from here on are in the filter
	wholeFrom    journal.Day    // all calls from this day on are there
	sum          sum            // of the balances of all accounts with money
	entries      *multiset.Hash // those of users, less the legs that lead to them
	buffer       []byte
	filter       *bloomFilter
	seed         maphash.Seed                       // of the numbers of legs
	system       map[journal.Account]*systemAccount // one for each kind and day
}

func (v *verification) add(p Problem) {
	if v.err == nil {
		v.Problems++
		v.problem(p)
	}
}

// report reports a problem; what is a format.
func (v *verification) report(where, what string, args ...any) {
	v.add(Problem{Where: where, What: fmt.Sprintf(what, args...)})
}

// get returns a record, or nil if there is none.
func (v *verification) get(key []byte) (val []byte) {
	if v.err == nil {
		val, v.err = v.reader.Get(key)
	}
	return val
}

// transfer returns a transfer and whether there is one. It returns nil for one that cannot be
// read, which is reported where all are read.
func (v *verification) transfer(id journal.ID) (*journal.Transfer, bool) {
	key := journal.TransferKey(id)
	val := v.get(key)
	if val == nil {
		return nil, false
	}
	x, err := journal.DecodeTransfer(key, val)
	if err != nil {
		return nil, true
	}
	return &x, true
}

// accounts goes through all accounts: system accounts, then user by user, with
// what else there is of each.
func (v *verification) accounts() {
	end := string(storage.PrefixEnd([]byte(journal.UserPrefix)))
	v.systemAccounts("", journal.UserPrefix)
	v.users(end)
	v.systemAccounts(end, "")
	if v.sum != (sum{}) {
		v.report("all accounts", "the sum of their balances is %v, not zero: money has come from nowhere or gone", v.sum)
	}
}
