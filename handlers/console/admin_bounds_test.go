package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// cursored is a page of a list that a cursor continues.
type cursored[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// follows reads a list to its end, and returns how often it has had each id, and the number of keys of
// the store that its most expensive page has read.
func follows[T any](t testing.TB, g *gatetest.Gate, limit int, id func(T) string, read func(query string) cursored[T]) (seen map[string]int, most int64) {
	t.Helper()
	seen = make(map[string]int)
	for after, pages := "", 1; ; pages++ {
		before := g.Reads()
		list := read(fmt.Sprintf("limit=%d&after=%s", limit, url.QueryEscape(after)))
		most = max(most, g.Reads()-before)
		for _, item := range list.Items {
			seen[id(item)]++
		}
		if len(list.Items) > limit || list.Next != "" && len(list.Items) == 0 || pages > 100 {
			t.Fatalf("page %d has %d entries, and continues after %q", pages, len(list.Items), list.Next)
		}
		if after = list.Next; after == "" {
			return seen, most
		}
	}
}

// TestTheKeysOfAllUsersComeInPages reads the keys of all users as the support does.
func TestTheKeysOfAllUsersComeInPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	support, _ := withRole(t, g, "support")
	want := make(map[string]bool)
	for i := range 5 {
		name := fmt.Sprintf("holder-%d", i)
		g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": name}, nil)
		for range 9 {
			var key gatetest.Key
			g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": name}, &key)
			want[key.ID] = true
		}
	}
	type key struct {
		ID       string
		UserName string `json:"user_name"`
	}
	for _, limit := range []int{1, 20, 45, 100} { // 45: the last page is full
		seen, most := follows(t, g, limit, func(k key) string { return k.ID }, func(query string) cursored[key] {
			return read[cursored[key]](t, support, "/api/admin/keys?"+query)
		})
		for id, times := range seen {
			if !want[id] || times != 1 {
				t.Errorf("with the limit %d, the key %s is listed %d times", limit, id, times)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("with the limit %d, %d keys are listed, want %d", limit, len(seen), len(want))
		}
		if limit == 1 && most > 20 { // the session, the role, the key and its user
			t.Errorf("a page of one key reads %d keys of the store", most)
		}
	}
	support.refused(t, "GET", "/api/admin/keys?user=holder-1&after=key_1", "", 400, "INVALID_PARAMETER")
	if all := read[cursored[key]](t, support, "/api/admin/keys?user=holder-1&limit=2"); len(all.Items) != 9 || all.Next != "" || all.Items[0].UserName != "holder-1" {
		t.Errorf("the list of one user is %+v", all)
	}
}

// TestTheCallsOfAllUsersComeInPages reads the calls of some users among many without any.
func TestTheCallsOfAllUsersComeInPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	calls := 0
	for range 12 {
		a := newAccount(t, g)
		g.Credit(t, a.name, "5.00")
		key := given(t, g, a.name, map[string]any{})
		for range 4 {
			if status := tries(t, g, key.Secret, "priced"); status != 200 {
				t.Fatalf("a call gets %d", status)
			}
			calls++
		}
	}
	type row struct {
		ID string `json:"request_id"`
	}
	list := func(query string) (page cursored[row]) {
		g.MustAdmin(t, http.MethodGet, "/modelgate/calls?"+query, nil, &page)
		return page
	}
	gatetest.Eventually(t, "all calls are listed", func() (int, bool) {
		seen, _ := follows(t, g, 100, func(c row) string { return c.ID }, list)
		return len(seen), len(seen) == calls
	})
	var alone int64
	for _, limit := range []int{1, 7, 20} {
		seen, most := follows(t, g, limit, func(c row) string { return c.ID }, list)
		for id, times := range seen {
			if times != 1 {
				t.Errorf("with the limit %d, the call %s is listed %d times", limit, id, times)
			}
		}
		if len(seen) != calls {
			t.Errorf("with the limit %d, %d calls are listed, want %d", limit, len(seen), calls)
		}
		alone = most
	}
	for i := range 250 {
		g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": fmt.Sprintf("idle-%d", i)}, nil)
	}
	if _, most := follows(t, g, 20, func(c row) string { return c.ID }, list); most > alone+10 {
		t.Errorf("a page reads %d keys of the store among idle users, and %d without them", most, alone)
	}
}

// TestTheReportsReadWhatHasMovedMoney makes reports on payments and sales of the last days, behind many
// older ones.
func TestTheReportsReadWhatHasMovedMoney(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: site})
	a := newAccount(t, g)
	g.Credit(t, a.name, "900.00")
	trades := 0
	trade := func(n int) {
		for range n {
			trades++
			o := post[order](t, a, "/api/user/demo/pay", `{"amount":"3.00"}`)
			id := fmt.Sprintf("evt_%d", trades)
			body := paidNotice(id, o.TradeNo, "3.00", "USD")
			if got := g.Do(t, "POST", hook, signed(id, body, g.Now()), body); got.Status != 200 {
				t.Fatalf("a notice is answered %d %s", got.Status, got.Body)
			}
			post[bought](t, a, "/api/subscription/wallet/pay", fmt.Sprintf(`{"plan_id":1,"idempotency_key":"key-%d"}`, trades))
		}
	}
	type row struct {
		Kind        string
		Count       int
		Gross, Sum  string
		Amount, Net string
	}
	// report returns the rows of a report, and the number of keys of the store that it reads.
	report := func(path string) (rows []row, reads int64) {
		t.Helper()
		var list struct{ Items []row }
		before := g.Reads()
		g.MustAdmin(t, http.MethodGet, path, nil, &list)
		return list.Items, g.Reads() - before
	}
	check := func(since string, n int) (reads [2]int64) {
		t.Helper()
		payments, first := report("/modelgate/payments" + since)
		if len(payments) != 1 || payments[0].Count != n || payments[0].Gross != fmt.Sprintf("%d.00", 3*n) {
			t.Errorf("the payments%s are %+v, want %d", since, payments, n)
		}
		sales, second := report("/modelgate/sales" + since)
		if len(sales) != 2 || sales[0].Count != n || sales[1].Count != n {
			t.Errorf("the sales%s are %+v, want %d of each kind", since, sales, n)
		}
		return [2]int64{first, second}
	}

	trade(30)
	g.Wait(40 * 24 * time.Hour)
	// The subscriptions have ended, and the token has not.
	trade(4)
	since := "?from=" + g.Now().UTC().AddDate(0, 0, -30).Format(time.DateOnly)
	all, recent := check("", 34), check(since, 4)
	for i, name := range []string{"payments", "sales"} {
		if recent[i] > 30 || all[i] < 34 {
			t.Errorf("the report on %s reads %d keys for 4 of 34, and %d for all", name, recent[i], all[i])
		}
	}
}
