package badger

import (
	"fmt"

	"github.com/dustin/go-humanize"

	"github.com/caddy-modelgate/modelgate/storage"
)

// space refuses writes while too little of the medium is free. Badger writes
// its logs through memory maps, and a page that finds no room kills the process
// (SIGBUS), so the end must never be reached. Asking the system costs about a
// microsecond, a hundredth of a sync, so every commit asks.
type space struct {
	dir  string
	min  uint64
	free func(dir string) (uint64, error)
}

// check returns storage.ErrLowSpace when less than the minimum is free, or when
// nobody can tell.
func (s *space) check() error {
	free, err := s.free(s.dir)
	if err != nil {
		return fmt.Errorf("%w: asking for it failed: %w", storage.ErrLowSpace, err)
	}
	if free < s.min {
		return fmt.Errorf("%w: %s free where %s is, %s needed", storage.ErrLowSpace,
			humanize.IBytes(free), s.dir, humanize.IBytes(s.min))
	}
	return nil
}
