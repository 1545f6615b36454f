package badger

import (
	"errors"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"
)

const (
	// garbageInterval is how often value-log files are checked. Usually no file
	// needs rewriting, and the check is a look-up in memory.
	garbageInterval = 10 * time.Minute

	// garbageRatio is the part of a value-log file that must be garbage before
	// the rest is rewritten. With a half, each large value is rewritten at most
	// once on average.
	garbageRatio = 0.5
)

// collectGarbage frees the space of deleted large values, until Close.
func (e *engine) collectGarbage() {
	ticker := time.NewTicker(garbageInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			for e.rewriteValueLog() {
			}
		case <-e.ended:
			return
		}
	}
}

// rewriteValueLog frees one value-log file, if one has enough garbage, and reports
// whether it did. It holds the writer's token, so that nothing is written or
// deleted meanwhile, and syncs the names of new files.
func (e *engine) rewriteValueLog() bool {
	select {
	case e.writer <- struct{}{}:
		defer e.release()
	case <-e.ended:
		return false
	}
	err := e.db.RunValueLogGC(garbageRatio)
	if err == nil {
		err = e.files.syncNew()
	}
	if err != nil && !errors.Is(err, badger.ErrNoRewrite) {
		e.log.zap.Error("freeing space in the value log", zap.Error(err))
	}
	return err == nil
}
