// Package verify checks that the records of package journal agree. [Verify] rebuilds the balances
// of users from their entries and the balances of system accounts from the legs of transfers. It
// reads one snapshot and keeps the records of one user and the sums of system accounts in memory.
// Of the ledger it imports only package journal.
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

// Problem is a contradiction between records of a store.
type Problem struct {
	Where string `json:"where"` // the record, such as "account u/ann/wallet"
	What  string `json:"what"`
}

// Report counts the records that [Verify] has read.
type Report struct {
	Accounts        int64         `json:"accounts"`
	Entries         int64         `json:"entries"`
	Transfers       int64         `json:"transfers"`
	Calls           int64         `json:"calls"`
	Holds           int64         `json:"holds"`
	IdempotencyKeys int64         `json:"claims"`
	Users           int64         `json:"users"`         // with any of these records
	Problems        int64         `json:"problem_count"` // including those of further checks
	Took            time.Duration `json:"took_ns"`
}

// Check looks for problems in the records of another package. Reads of r fail after the context of
// Verify has ended.
type Check func(r storage.Reader, problem func(Problem)) error

// Verify rebuilds every balance: of users from their entries, of system accounts from the legs of
// transfers. It compares entries with transfers, holds with held amounts, calls with their
// payments, usage with calls and tasks, and indexes with their records. It also checks that each
// transfer has only the effects that its kind allows. It calls problem for each contradiction, then
// runs the checks. It changes nothing.
//
// r must be one snapshot. A call near the end of its retention may be missing. Verify returns an
// error only if a read fails or ctx ends. Its memory depends on the records of one user and on the
// number of system accounts, not on the total number of entries and calls.
func Verify(ctx context.Context, r storage.Reader, now time.Time, problem func(Problem), checks ...Check) (Report, error) {
	began := time.Now()
	r = interruptible{ctx, r}
	retention, err := journal.ReadRetention(r)
	retentionErr := err
	if errors.Is(err, storage.ErrUnreadable) {
		retention = journal.Retention{} // any call may be missing
	} else if err != nil {
		return Report{}, err
	}
	from := retention.From(now)
	kept := from.Add(min(keptMargin, retention.Kept/2))
	v := &verification{
		reader: r, problem: problem,
		paidFrom: journal.FirstTimed(kept), filteredFrom: journal.FirstTimed(from), completeFrom: journal.DayOf(kept.AddDate(0, 0, 1)),
		entries: multiset.New(), filter: newBloomFilter(), seed: maphash.MakeSeed(), system: make(map[journal.Account]*systemAccount),
	}
	if retentionErr != nil {
		v.report("the retention of calls", "%v", retentionErr)
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

// keptMargin is the time before the end of its retention in which a call record may be missing.
// The engine drops records by its own clock.
const keptMargin = 24 * time.Hour

// verification is the state of a run of [Verify].
type verification struct {
	Report
	reader       storage.Reader
	err          error // of the first failed read; after it, nothing is read or reported
	problem      func(Problem)
	paidFrom     journal.ID     // settlements from this id on are in call records
	filteredFrom journal.ID     // settlements from this id on are in the filter
	completeFrom journal.Day    // all calls from this day on are kept
	sum          sum            // of the balances of all accounts with money
	entries      *multiset.Hash // entries of users minus legs
	buffer       []byte
	filter       *bloomFilter
	seed         maphash.Seed                       // of the hashes of leg numbers
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

// transfer returns a transfer and whether it exists. If it cannot be read, transfer returns nil and
// true; transfers reports it.
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

// accounts checks all accounts: system accounts, then users with their other records.
func (v *verification) accounts() {
	end := string(storage.PrefixEnd([]byte(journal.UserPrefix)))
	v.systemAccounts("", journal.UserPrefix)
	v.users(end)
	v.systemAccounts(end, "")
	if v.sum != (sum{}) {
		v.report("all accounts", "the sum of their balances is %v, not zero: money was created or lost", v.sum)
	}
}
