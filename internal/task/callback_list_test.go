package task

import (
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestACallbackListSkipsAMalformedKey checks a list with index keys that have no record.
func TestACallbackListSkipsAMalformedKey(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.damaged = true
		if err := f.store.Update(context.Background(), func(t storage.Txn) error {
			for n := range int64(2) {
				if err := t.Set(storage.Key(record.EventOfPrefix, ann, n, record.NewID()), nil, time.Time{}); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if list, next, err := f.Callbacks(context.Background(), ann, "", 1); err != nil || len(list) > 0 {
			t.Error(list, next, err)
		}
	})
}
