package task

import (
	"context"
	"reflect"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/transition"
)

// TestRereadReturnsTheStoredTask checks that Reread returns the known record without decoding
// if this process has written it and the stored record is the same.
func TestRereadReturnsTheStoredTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		audio := true
		s := with(func(s *Submission) {
			s.SessionID, s.SessionContext, s.IdempotencyKey = "s", "<&\u2028", "k"
			s.Quote = catalog.Quote{
				Rule: "0.10 a second", Kind: catalog.Video, Request: 7,
				Asked: catalog.Work{Count: 2, Duration: 8*catalog.Second + 1, Resolution: "720P", Audio: &audio},
				Rows:  []catalog.Variant{{Resolution: "720P", Audio: true, Price: 3}, {Price: 1}},
			}
			s.Job.Prompt, s.Job.Output.MediaName = "<&\u2028", "cat"
		})
		same := func(known, have *record.Record) bool {
			mine, its := *known, *have
			*record.Tasks.Written(&mine), *record.Tasks.Written(&its) = nil, nil
			return reflect.DeepEqual(mine, its)
		}
		err := f.ledger.Update(context.Background(), ann, nil, func(t *ledger.Txn) error {
			made, err := s.accept(t, f.Engine, s.record(record.NewID()), nil)
			if err != nil {
				return err
			}
			read, err := record.Tasks.Get(t, made.ID)
			if err != nil {
				return err
			}
			known, err := record.Tasks.Reread(t, made)
			if err != nil {
				return err
			}
			if !same(made, read) || known != made {
				f.t.Errorf("made\n%+v\nread\n%+v\nknown\n%+v", made, read, known)
			}
			if _, err := f.writer.Apply(context.Background(), t, transition.Retry, &transition.Change{Known: made, Before: read, Owner: record.Anyone}); err != nil {
				return err
			}
			if known, err = record.Tasks.Reread(t, made); err == nil && !known.Woken {
				f.t.Error("Reread does not return the change of another engine")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}
