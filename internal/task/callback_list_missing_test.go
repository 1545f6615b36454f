package task

import (
	"context"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestTheListOfCallbacksSkipsAKeyWithoutARecord(t *testing.T) {
	in(t, func(w *world) {
		w.listen()
		var ids []string
		for range 4 {
			one := w.must(video())
			ids = append(ids, one.ID)
		}
		w.service.succeed(1)
		for _, id := range ids {
			w.until(id, record.Success, 10*60e9)
		}
		list, _, err := w.Callbacks(context.Background(), ann, "", 10)
		if err != nil || len(list) != 4 {
			t.Fatal(len(list), err)
		}
		w.damaged = true
		if err := w.store.Update(context.Background(), func(x storage.Txn) error { return x.Delete(storage.Key(record.EventPrefix, list[1].Task)) }); err != nil {
			t.Fatal(err)
		}
		n := 0
		for after, turns := "", 0; turns < 10; turns++ {
			page, next, err := w.Callbacks(context.Background(), ann, after, 2)
			if err != nil {
				t.Fatalf("after %d: %v", n, err)
			}
			n += len(page)
			if after = next; next == "" {
				break
			}
		}
		if n != 3 {
			t.Errorf("%d of 3", n)
		}
	})
}
