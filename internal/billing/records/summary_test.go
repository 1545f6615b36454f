package records

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestATruncatedSummaryIsRefused(t *testing.T) {
	t.Parallel()
	complete := &Summary{Due: 5, Purchases: map[int64]int64{1: 2}, Running: []Running{{ID: 1, End: 5, Presence: Presence{From: 1, Until: 2, Start: 1}}}}
	stored := complete.encode()
	for n := range stored {
		if s, err := decodeSummary(stored[:n]); err == nil {
			t.Errorf("truncated to %d of %d bytes, the summary was read as %+v", n, len(stored), s)
		}
	}
}

func TestSummariesRoundTrip(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	rapid.Check(t, func(t *rapid.T) {
		s := Summary{User: "usr_x", Due: rapid.Int64().Draw(t, "due"), Ended: -1}
		for _, plan := range rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 20).Draw(t, "plans") {
			s.CountPurchase(plan)
		}
		for i, end := range rapid.SliceOfN(rapid.Int64Range(1, 9), 1, 20).Draw(t, "ends") {
			s.Add(Running{ID: int64(i), End: end, Presence: Presence{From: rapid.Int64().Draw(t, "from"), Until: end, Start: end}})
		}
		var have *Summary
		err := store.Update(context.Background(), func(txn storage.Txn) (err error) {
			if err = Summaries.Put(txn, nil, &s); err != nil {
				return err
			}
			if have, err = ReadSummary(txn, "usr_x", time.Unix(0, 0)); err != nil {
				return err
			}
			return Summaries.Put(txn, have, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
		have.stored, have.storedDue, have.changed = false, 0, true
		if !reflect.DeepEqual(*have, s) {
			t.Fatalf("wrote %+v, read %+v", s, have)
		}
		if !slices.IsSortedFunc(s.Running, Running.Compare) {
			t.Fatalf("the running subscriptions are out of order: %+v", s.Running)
		}
	})
}
