package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/multiset"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Problem is something in a store that does not add up.
type Problem struct {
	Where string `json:"where"` // what it concerns: "account u/ann/wallet"
	What  string `json:"what"`
}

// Report counts what [Verify] has looked at.
type Report struct {
	Accounts        int64         `json:"accounts"`
	Entries         int64         `json:"entries"` // that are stored
	Transfers       int64         `json:"transfers"`
	Calls           int64         `json:"calls"`
	Holds           int64         `json:"holds"`
	IdempotencyKeys int64         `json:"claims"`
	Users           int64         `json:"users"`         // of whom there is anything of these
	Problems        int64         `json:"problem_count"` // told of, those of further checks included
	Took            time.Duration `json:"took_ns"`
}

// Check looks for problems in what another package keeps in the store. r ends
// with an error when the context does that Verify was given.
type Check func(r storage.Reader, problem func(Problem)) error

// Verify rebuilds every balance, those of users from their entries, those of
// system accounts from the legs of transfers, and looks whether all that is written twice
// says the same: entries and transfers, holds and what is held, calls and what
// they have paid, the sums of days and their calls and tasks, indexes and their
// records; and whether each transfer changes only what one of its kind may.
// problem is called for each thing that does not add up; then the checks run.
// Verify changes nothing.
//
// r is one snapshot, of a store in use or of a copy. Which calls may be gone it
// knows by what the store says of how long they are kept, and leaves some time
// beside. The error is that of reading, or of ctx. The memory that Verify takes is
// that of what one user has, and of how many days have system accounts, not
// of how many entries and calls there are.
func Verify(ctx context.Context, r storage.Reader, now time.Time, problem func(Problem), checks ...Check) (Report, error) {
	began := time.Now()
	k, err := readKeeping(interruptible{ctx, r})
	unread := err
	if errors.Is(err, storage.ErrUnreadable) {
		k = keeping{} // then of no call it is known that it must be there
	} else if err != nil {
		return Report{}, err
	}
	from := k.from(now)
	kept := from.Add(min(keptMargin, k.Kept/2))
	v := &verification{
		Reader: interruptible{ctx, r}, problem: problem,
		paidFrom: firstTimed(kept), filteredFrom: firstTimed(from), wholeFrom: DayOf(kept.AddDate(0, 0, 1)),
		entries: multiset.New(), filter: newBloomFilter(), system: newSystemAccounts(),
	}
	if unread != nil {
		v.tell("how long calls are kept", "%v", unread)
	}
	for _, step := range []func() error{v.accounts, v.transfers, v.checkSystemLegs, v.unmatched, v.idempotencyKeys} {
		if err = step(); err != nil {
			break
		}
	}
	for _, check := range checks {
		if err != nil {
			break
		}
		err = check(v.Reader, v.report)
	}
	v.Took = time.Since(began)
	return v.Report, err
}

// keptMargin is how long before the end of their time records of calls are not
// relied on any more: the engine drops them by its own clock.
const keptMargin = 24 * time.Hour

// verification is a Verify under way.
type verification struct {
	storage.Reader
	Report
	problem      func(Problem)
	paidFrom     ID             // the settlements from here on are in records of calls
	filteredFrom ID             // those from here on are in the filter
	wholeFrom    Day            // all calls from this day on are there
	sum          sum            // of the balances of all accounts with money
	entries      *multiset.Hash // those of users, less the legs that lead to them
	buffer       []byte
	filter       *bloomFilter
	system       *systemAccounts
}

func (v *verification) report(p Problem) {
	v.Problems++
	v.problem(p)
}

// tell reports a problem; what is a format.
func (v *verification) tell(where, what string, args ...any) {
	v.report(Problem{Where: where, What: fmt.Sprintf(what, args...)})
}

// accounts goes through all accounts: system accounts, then user by user, with
// what else there is of each.
func (v *verification) accounts() error {
	if err := v.scanSystemAccounts("", userPrefix); err != nil {
		return err
	}
	if err := v.users(); err != nil {
		return err
	}
	if err := v.scanSystemAccounts(string(storage.PrefixEnd([]byte(userPrefix))), ""); err != nil {
		return err
	}
	if !v.sum.zero() {
		v.tell("all accounts", "the sum of their balances is %v, not zero: money has come from nowhere or gone", &v.sum)
	}
	return nil
}
