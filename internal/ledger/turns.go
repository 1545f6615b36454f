package ledger

import (
	"context"
	"sync"
)

// Turns lets one at a time do what has a name: the second finds what the first
// has done. The zero value is ready to use.
type Turns struct {
	taken sync.Map // string → chan struct{}, closed when the turn ends
}

// Take waits until nobody has name, or ctx ends, and takes it until done is
// called.
func (t *Turns) Take(ctx context.Context, name string) (done func(), err error) {
	for {
		mine := make(chan struct{})
		other, taken := t.taken.LoadOrStore(name, mine)
		if !taken {
			return func() {
				t.taken.Delete(name)
				close(mine)
			}, nil
		}
		select {
		case <-other.(chan struct{}):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
