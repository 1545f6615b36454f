package ledger

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// manyCalls settles n calls of 7 users, one every 37 minutes, and returns them in the order of lists.
func (f *fixture) manyCalls(n int) (all []journal.Call) {
	f.t.Helper()
	begin := f.clock.Now()
	for i := range n {
		at := begin.Add(-time.Duration(i/2) * 37 * time.Minute) // two calls of a millisecond
		c := aCall(f, requestid.At(at), userNumber(i*i%7))
		c.Time, c.Model = at.UnixMilli(), []string{"a", "b", "c"}[i%3]
		f.reserve(Payer{User: c.User}, 0).Settle(c, 0, true)
		all = append(all, c)
	}
	f.settled()
	slices.SortFunc(all, func(a, b journal.Call) int {
		return callOrder(&journal.CallRecord{Call: a}, &journal.CallRecord{Call: b})
	})
	return all
}

// pages returns the ids of all calls of a list, read in pages, and the number of pages.
func (f *fixture) pages(user string, filter CallFilter, limit int, match func(*journal.Call) bool) (ids []string, pages int) {
	f.t.Helper()
	for after := ""; ; {
		list, next, err := f.LatestCalls(f.t.Context(), user, filter, after, limit, match)
		if err != nil || len(list) > limit {
			f.t.Fatal(len(list), err)
		}
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		if pages++; next == "" {
			return ids, pages
		}
		after = next
	}
}

func TestLatestCallsMergesTheCallsOfAllUsers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	all := f.manyCalls(300)
	from, until := time.UnixMilli(all[200].Time), time.UnixMilli(all[50].Time)
	for name, filter := range map[string]CallFilter{
		"all": {}, "a model": {Model: "b"}, "a span": {From: from, Until: until}, "a model of a span": {Model: "c", From: from, Until: until},
	} {
		for _, user := range []string{"", userNumber(1), "nobody"} {
			odd := func(c *journal.Call) bool { return strings.ContainsAny(c.ID[len(c.ID)-1:], "ABCDEFGHIJKLMNOP") }
			var want []string
			for _, c := range all {
				at := time.UnixMilli(c.Time)
				if (user == "" || c.User == user) && (filter.Model == "" || c.Model == filter.Model) && odd(&c) &&
					!at.Before(filter.From) && (filter.Until.IsZero() || at.Before(filter.Until)) {
					want = append(want, c.ID)
				}
			}
			for _, limit := range []int{1, 7, 400} {
				got, pages := f.pages(user, filter, limit, odd)
				if !slices.Equal(got, want) || pages != max(1, (len(want)+limit-1)/limit) {
					t.Errorf("%s of %q: %d calls on %d pages of %d, want %d", name, user, len(got), pages, limit, len(want))
				}
			}
		}
	}
	for _, c := range []journal.Call{all[0], all[299]} {
		if found, ok, err := f.FindCall(t.Context(), c.ID, ""); err != nil || !ok || found.User != c.User {
			t.Errorf("the call of %s: found %v with user %s, %v", c.User, ok, found.User, err)
		}
	}
	if _, ok, err := f.FindCall(t.Context(), all[0].ID, "nobody"); ok || err != nil {
		t.Errorf("a call of another user: found %v, %v", ok, err)
	}
}

func TestLatestCallsReadsABoundedNumberOfCalls(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	all := f.manyCalls(maxExamined + 2)
	oldest := func(c *journal.Call) bool { return c.ID == all[len(all)-1].ID }
	list, next, err := f.LatestCalls(t.Context(), "", CallFilter{}, "", 20, oldest)
	if err != nil || len(list) != 0 || next != all[maxExamined-1].ID {
		t.Fatalf("%d calls, continued after %s, %v; want none, after %s", len(list), next, err, all[maxExamined-1].ID)
	}
	if ids, pages := f.pages("", CallFilter{}, 20, oldest); len(ids) != 1 || pages != 2 {
		t.Errorf("%d calls on %d pages", len(ids), pages)
	}
	f.checkVerified()
}

// TestLatestCallsReadsTheUsersOfItsDays counts what a page reads in front of older calls of other users.
func TestLatestCallsReadsTheUsersOfItsDays(t *testing.T) {
	t.Parallel()
	engine := &storagetest.Counted{Engine: memory.New()}
	f := newFixtureOver(t, engine, storagetest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)), Options{})
	calls := func(day time.Time, from, users int) {
		for i := range users {
			for n := range 4 {
				at := day.Add(time.Duration(4*i+n) * time.Second)
				c := aCall(f, requestid.At(at), userNumber(from+i))
				c.Time = at.UnixMilli()
				f.reserve(Payer{User: c.User}, 0).Settle(c, 0, true)
			}
		}
		f.settled()
	}
	page := func() int64 {
		engine.Reads.Store(0)
		if list, next, err := f.LatestCalls(t.Context(), "", CallFilter{}, "", 20, func(*journal.Call) bool { return true }); err != nil || len(list) != 20 || next == "" {
			t.Fatalf("%d calls, continued after %q, %v", len(list), next, err)
		}
		return engine.Reads.Load()
	}
	calls(f.clock.Now(), 0, 10)
	alone := page()
	calls(f.clock.Now().AddDate(0, 0, -2), 100, 200)
	if among := page(); among > alone+1 || alone > 100 { // 1: the mark of another day ends the list of users
		t.Errorf("a page reads %d keys of the store, and %d in front of older calls", alone, among)
	}
}
