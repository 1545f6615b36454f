package badger

import (
	"fmt"
	"sync/atomic"

	"github.com/dustin/go-humanize"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
)

// space refuses writes when the disk is nearly full. Badger writes its logs
// through memory maps, and a page that cannot be allocated kills the process
// (SIGBUS). The system call takes about a microsecond, a hundredth of a sync, so
// every commit makes it.
type space struct {
	dir  string
	min  atomic.Uint64
	free func(dir string) (uint64, error)
}

func newSpace(c config, least uint64) *space {
	s := &space{dir: c.dir, free: c.free}
	s.min.Store(least)
	return s
}

// Adopt implements storage.Adopter.
func (e *engine) Adopt(o storage.Opener) {
	b, ok := o.(*Badger)
	if !ok {
		return
	}
	if sizings[b.Memory] != e.size {
		b.logger.Warn("the configured memory of the store needs a restart; until then the store keeps its memory", zap.String("memory", b.Memory))
	}
	e.space.min.Store(uint64(max(b.MinFree, e.size.leastFree())))
}

// Space implements storage.Spacer.
func (e *engine) Space() (free, least uint64, err error) {
	free, err = e.space.free(e.space.dir)
	return free, e.space.min.Load(), err
}

// check returns storage.ErrLowSpace if less than the minimum is free, or if the
// free space is unknown.
func (s *space) check() error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: the free space is unknown: %w", storage.ErrLowSpace, err)
	}
	if least := s.min.Load(); free < least {
		return fmt.Errorf("%w: %s free on the disk of %s, %s needed", storage.ErrLowSpace,
			humanize.IBytes(free), s.dir, humanize.IBytes(least))
	}
	return nil
}
