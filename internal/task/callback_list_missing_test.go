package task

import (
	"context"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestTheListOfCallbacksSkipsAKeyWithoutARecord(t *testing.T) {
	withFixture(t, func(f *fixture) {
		f.listen()
		var ids []string
		for range 4 {
			one := f.mustSubmit(video())
			ids = append(ids, one.ID)
		}
		f.service.succeed(1)
		for _, id := range ids {
			f.waitStatus(id, record.Success, 10*60e9)
		}
		list, _, err := f.Callbacks(context.Background(), ann, "", 10)
		if err != nil || len(list) != 4 {
			t.Fatal(len(list), err)
		}
		f.damaged = true
		if err := f.store.Update(context.Background(), func(x storage.Txn) error { return x.Delete(storage.Key(record.EventPrefix, list[1].Task)) }); err != nil {
			t.Fatal(err)
		}
		n := 0
		for after, turns := "", 0; turns < 10; turns++ {
			page, next, err := f.Callbacks(context.Background(), ann, after, 2)
			if err != nil {
				t.Fatalf("after %d: %v", n, err)
			}
			n += len(page)
			if after = next; next == "" {
				break
			}
		}
		if n != 3 {
			t.Errorf("%d callbacks, want 3", n)
		}
	})
}
