package identity

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
)

// purges is a transaction that notes how long what is written in it is kept.
type purges struct {
	storage.Txn
	now  time.Time
	kept map[time.Duration]int
}

func (p purges) Set(key, val []byte, purge time.Time) error {
	p.kept[purge.Sub(p.now)]++
	return p.Txn.Set(key, val, purge)
}

func TestAnEventIsKeptForAsLongAsWasSaidWhenItWasRecorded(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const day = 24 * time.Hour
	for _, step := range []struct{ said, want time.Duration }{{0, 400 * day}, {30 * day, 30 * day}, {0, 30 * day}, {3653 * day, 3653 * day}, {AuditKept, AuditKept}} {
		if step.said != 0 {
			if err := f.KeepAudit(t.Context(), step.said); err != nil {
				t.Fatal(err)
			}
		}
		f.clock.pass(time.Hour)
		noted := purges{now: f.clock.Now(), kept: make(map[time.Duration]int)}
		err := f.store.Update(t.Context(), func(txn storage.Txn) error {
			noted.Txn = txn
			if err := Record(t.Context(), noted, noted.now, &Event{Actor: "operator", Action: "backend.drain"}); err != nil {
				return err
			}
			return Record(t.Context(), noted, noted.now, &Event{Actor: "operator", Action: "user.disable", User: "usr_1"})
		})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(noted.kept, map[time.Duration]int{step.want: 2}) {
			t.Errorf("after %v were said, events are kept for %v, not for %v", step.said, slices.Collect(maps.Keys(noted.kept)), step.want)
		}
	}
}
