package task

import (
	"context"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

func TestAListContinuesAfterARemovedTask(t *testing.T) {
	withFixture(t, func(f *fixture) {
		now := f.now()
		f.insertFinished([2]int64{now, now + 2*DefaultKept.Milliseconds()})
		f.insertFinished(slices.Repeat([][2]int64{{now + 1, now + 1}}, maxExamined)...)
		f.sleep(DefaultKept + 1000000)
		_, next, err := f.List(context.Background(), record.OfKey(annKey), Page{})
		if err != nil || next == "" {
			t.Fatal(next, err)
		}
		if err := f.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
		list, next, err := f.List(context.Background(), record.OfKey(annKey), Page{After: next})
		if err != nil {
			t.Errorf("%d, %q, %v", len(list), next, err)
		}
	})
}
