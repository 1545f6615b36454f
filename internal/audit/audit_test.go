package audit_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// recordingTxn is a transaction that counts its writes by their retention.
type recordingTxn struct {
	storage.Txn
	now  time.Time
	kept map[time.Duration]int
}

func (p recordingTxn) Set(key, val []byte, purge time.Time) error {
	p.kept[purge.Sub(p.now)]++
	return p.Txn.Set(key, val, purge)
}

func TestAnEventHasTheRetentionOfTheTimeOfItsRecord(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	store := storage.New(memory.New(), storage.Options{Clock: func() time.Time { return now }})
	t.Cleanup(func() { _ = store.Close() })
	log := audit.New(store, zap.NewNop())
	const day = 24 * time.Hour
	for _, step := range []struct{ set, want time.Duration }{{0, 400 * day}, {30 * day, 30 * day}, {0, 30 * day}, {3653 * day, 3653 * day}, {audit.DefaultRetention, audit.DefaultRetention}} {
		if step.set != 0 {
			if err := log.SetRetention(t.Context(), step.set); err != nil {
				t.Fatal(err)
			}
		}
		recorded := recordingTxn{now: now.Add(time.Hour), kept: make(map[time.Duration]int)}
		err := store.Update(t.Context(), func(txn storage.Txn) error {
			recorded.Txn = txn
			if err := audit.Record(t.Context(), recorded, recorded.now, &audit.Event{Actor: "operator", Action: "backend.drain"}); err != nil {
				return err
			}
			return audit.Record(t.Context(), recorded, recorded.now, &audit.Event{Actor: "operator", Action: "user.disable", User: "usr_1"})
		})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(recorded.kept, map[time.Duration]int{step.want: 2}) {
			t.Errorf("after it was set to %v, events are kept for %v, not for %v", step.set, slices.Collect(maps.Keys(recorded.kept)), step.want)
		}
	}
}
