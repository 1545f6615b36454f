package task

import (
	"context"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestASweepOfAFullDiskGivesUp(t *testing.T) {
	in(t, func(w *world) {
		const n = 3000
		w.passed(slices.Repeat([][2]int64{{w.now(), w.now()}}, n)...)
		w.sleep(DefaultKept)
		w.faulty.Plan(slices.Repeat([]storagetest.Fault{storagetest.LowSpace}, 2*n)...)
		before := w.faulty.Commits()
		err := w.Sweep(context.Background())
		if tried := w.faulty.Commits() - before; tried > 10 {
			t.Errorf("%d commits were tried on a full disk, and %d bytes of error are logged", tried, len(err.Error()))
		}
	})
}
