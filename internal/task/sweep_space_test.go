package task

import (
	"context"
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestASweepOfAFullDiskGivesUp(t *testing.T) {
	withFixture(t, func(f *fixture) {
		const n = 3000
		f.insertFinished(slices.Repeat([][2]int64{{f.now(), f.now()}}, n)...)
		f.sleep(DefaultKept)
		f.faulty.Plan(slices.Repeat([]storagetest.Fault{storagetest.LowSpace}, 2*n)...)
		before := f.faulty.Commits()
		err := f.Sweep(context.Background())
		if tried := f.faulty.Commits() - before; tried > 10 {
			t.Errorf("%d commits were tried on a full disk; the error has %d bytes", tried, len(err.Error()))
		}
	})
}
