package badger

import (
	"errors"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/zap"
)

const (
	// garbageInterval is how often value-log files are looked at. Finding none
	// worth the work, the usual case, costs a look at a table in memory.
	garbageInterval = 10 * time.Minute

	// garbageRatio is the part of a value-log file that must be garbage before
	// the rest is written anew; a half writes every large value twice at most.
	garbageRatio = 0.5
)

// collectGarbage frees what large values have left behind, until Close.
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

// rewriteValueLog frees one value-log file, if one is worth it, and tells
// whether it did. It runs in the place of an update: then nothing is written or
// deleted under the rewriting, and the update after it syncs the names of new
// files.
func (e *engine) rewriteValueLog() bool {
	select {
	case e.writer <- struct{}{}:
		defer e.yield()
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
