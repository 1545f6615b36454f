package console

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// TestTheTotalOfCallsEqualsTheList makes calls at random times of the last
// hundred days, some of them at midnight. It compares the total from the sums of days
// with the number of listed calls, for several retention times.
func TestTheTotalOfCallsEqualsTheList(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 16, 40, 0, 123, time.UTC)
	store := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = store.Close() })
	book, err := ledger.Open(t.Context(), store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 2000 {
		r, err := book.Reserve(t.Context(), ledger.Payer{User: "usr_1"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := now.Add(-time.Duration(random.Int64N(int64(100 * day))))
		if i%10 == 0 {
			at = midnight(at)
		}
		r.Settle(journal.Call{
			ID: fmt.Sprintf("req_%04d", i), Time: at.UnixMilli(), User: "usr_1",
			Ended: []usage.Ended{usage.Complete, usage.Complete, usage.Refused}[random.IntN(3)],
			Key:   fmt.Sprintf("key_%d", i%3), Model: fmt.Sprintf("m/%d", i%2),
		}, 0, true)
	}
	book.Close(t.Context())

	req := &request{
		runtime: &caddymodule.Runtime{Store: store, Ledger: book}, account: &identity.Account{UserID: "usr_1"},
		r: httptest.NewRequest("GET", "/", nil),
	}
	moment := func() time.Time {
		switch random.IntN(4) {
		case 0:
			return time.Time{}
		case 1:
			return midnight(now.Add(-time.Duration(random.Int64N(int64(110 * day)))))
		}
		return now.Add(-time.Duration(random.Int64N(int64(110 * day)))).Truncate(time.Second)
	}
	counted := 0
	for _, kept := range []time.Duration{journal.DefaultRetention, 30 * day, 60 * day} {
		if err := book.SetCallRetention(t.Context(), kept); err != nil {
			t.Fatal(err)
		}
		for range 500 {
			filter := ledger.CallFilter{From: moment(), Until: moment()}
			if !filter.From.IsZero() && !filter.Until.IsZero() && !filter.From.Before(filter.Until) {
				filter.From, filter.Until = filter.Until, filter.From
			}
			filter.Key = []string{"", "key_0", "key_9"}[random.IntN(3)]
			filter.Model = []string{"", "m/1"}[random.IntN(2)]
			total, err := req.countCalls(filter)
			if err != nil {
				t.Fatal(err)
			}
			var listed int64
			if err := req.scanCalls(filter, func(journal.CallRecord) bool { listed++; return true }); err != nil {
				t.Fatal(err)
			}
			if total != listed {
				t.Errorf("%+v: %d are counted, %d are listed", filter, total, listed)
			}
			counted += int(total)
		}
	}
	if counted == 0 {
		t.Error("no call was counted")
	}
}

// TestTheCSVHasTheCallsOfTheList makes three batches of calls, many of them in the same
// millisecond, and compares the CSV file with the list.
func TestTheCSVHasTheCallsOfTheList(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 16, 40, 0, 0, time.UTC)
	store := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = store.Close() })
	book, err := ledger.Open(t.Context(), store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * csvBatch {
		r, err := book.Reserve(t.Context(), ledger.Payer{User: "usr_1"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		at := now.Add(-time.Duration(i/(csvBatch+csvBatch/2)) * time.Millisecond)
		r.Settle(journal.Call{
			ID: fmt.Sprintf("req_%04d", i), Time: at.UnixMilli(), User: "usr_1", Ended: "complete",
			Key: fmt.Sprintf("key_%d", i%3), Model: []string{"m", "=m"}[i%2],
		}, 0, true)
	}
	book.Close(t.Context())
	for _, filter := range []ledger.CallFilter{{}, {Key: "key_1"}, {Model: "=m", Until: now}, {From: now}, {Until: now.Add(-time.Hour)}} {
		w := httptest.NewRecorder()
		req := &request{
			runtime: &caddymodule.Runtime{Store: store, Ledger: book}, account: &identity.Account{UserID: "usr_1"},
			r: httptest.NewRequest("GET", "/", nil), w: w,
		}
		if err := req.callsCSV(filter); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var got, want []string
		for _, row := range rows[1:] {
			got = append(got, row[slices.Index(rows[0], "request_id")])
			if model := row[slices.Index(rows[0], "model")]; model != "m" && model != "'=m" {
				t.Fatalf("a model is written %q", model)
			}
		}
		if err := book.ScanCalls(t.Context(), "usr_1", filter, func(c journal.CallRecord) bool {
			want = append(want, c.ID)
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v: the file has %d calls, the list %d", filter, len(got), len(want))
		}
	}
}
