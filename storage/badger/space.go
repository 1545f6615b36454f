package badger

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/caddy-modelgate/modelgate/storage"
)

// space refuses writes when the disk is nearly full. Badger writes its logs
// through memory maps, and a page that cannot be allocated kills the process
// (SIGBUS). Asking the system takes about a microsecond, a hundredth of a sync,
// so every commit asks.
type space struct {
	dir  string
	min  uint64
	free func(dir string) (uint64, error)
}

// Space implements storage.Spacer.
func (e *engine) Space() (free, least uint64, err error) {
	free, err = e.space.free(e.space.dir)
	return free, e.space.min, err
}

// check returns storage.ErrLowSpace if less than the minimum is free, or if the
// free space is unknown.
func (s *space) check() error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: the free space is unknown: %w", storage.ErrLowSpace, err)
	}
	if free < s.min {
		return fmt.Errorf("%w: %s free on the disk of %s, %s needed", storage.ErrLowSpace,
			humanize.IBytes(free), s.dir, humanize.IBytes(s.min))
	}
	return nil
}
