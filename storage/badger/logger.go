package badger

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// syncFailed is how Badger begins the log line about a failed sync of the value
// log. The error goes nowhere else: the commit is reported as done.
const syncFailed = "Error while curlf sync"

// logger hands Badger's messages to zap, its everyday ones at debug level, and
// listens for the one failure that Badger tells nobody else.
type logger struct {
	zap  *zap.Logger
	lost atomic.Bool
}

// failure returns an error once a large value may not have reached the medium.
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
