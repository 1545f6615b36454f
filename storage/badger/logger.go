package badger

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// syncFailed is the beginning of Badger's log line about a failed sync of the
// value log. Badger reports that error nowhere else: the commit succeeds.
const syncFailed = "Error while curlf sync"

// flushFailed is the beginning of Badger's log line about a memtable that could
// not be written as a table. Badger tries that again every second, without end,
// and its Close waits for it.
const flushFailed = "error flushing memtable"

// logger passes Badger's messages to zap, the routine ones at debug level, and
// detects the failures that Badger reports only in its log.
type logger struct {
	zap       *zap.Logger
	lost      atomic.Bool
	unflushed chan error // the last failure to write a table
}

func newLogger(to *zap.Logger) *logger {
	return &logger{zap: to, unflushed: make(chan error, 1)}
}

// failure returns an error once a large value may not be on disk.
func (l *logger) failure() error {
	if l.lost.Load() {
		return errors.New("badger: commit: the value log could not be synced")
	}
	return nil
}

// Errorf implements badger.Logger.
func (l *logger) Errorf(format string, args ...any) {
	if strings.HasPrefix(format, syncFailed) {
		l.lost.Store(true)
	}
	if strings.HasPrefix(format, flushFailed) {
		select {
		case l.unflushed <- fmt.Errorf(format, args...):
		default:
		}
	}
	l.write(zap.ErrorLevel, format, args)
}

// Warningf implements badger.Logger.
func (l *logger) Warningf(format string, args ...any) { l.write(zap.WarnLevel, format, args) }

// Infof implements badger.Logger.
func (l *logger) Infof(format string, args ...any) { l.write(zap.DebugLevel, format, args) }

// Debugf implements badger.Logger. Badger calls it several times a commit.
func (l *logger) Debugf(string, ...any) {}

func (l *logger) write(level zapcore.Level, format string, args []any) {
	if entry := l.zap.Check(level, "badger reports"); entry != nil {
		entry.Write(zap.String("detail", strings.TrimSpace(fmt.Sprintf(format, args...))))
	}
}
