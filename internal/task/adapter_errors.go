package task

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// pollTimeout bounds every call of an adapter except Submit.
const pollTimeout = 30 * time.Second

// adapterError reports that an adapter has broken its contract.
type adapterError struct {
	what   string
	detail string // from the adapter; may repeat text of the service
}

func (e *adapterError) Error() string {
	if e.detail == "" {
		return e.what
	}
	return e.what + ": " + e.detail
}

var (
	errNoReference = &adapterError{what: "the adapter returned no reference"}
	errNoResults   = &adapterError{what: "the adapter returned a success without results"}
)

// catchPanic converts a panic of an adapter to an error. Call it by defer. The message of a runtime
// error contains no data of a caller.
func catchPanic(err *error) {
	p := recover()
	if p == nil {
		return
	}
	e := &adapterError{what: "the adapter panicked", detail: fmt.Sprint(p)}
	if runtimeErr, ok := p.(runtime.Error); ok {
		e.what, e.detail = e.what+": "+runtimeErr.Error(), ""
	}
	*err = e
}

// logBackendError logs the error of a backend. The text may repeat a prompt or a signed URL, so it is
// logged at level debug only.
func (c *core) logBackendError(level zapcore.Level, message string, rec *record.Record, err error) {
	log := c.store.Log.With(zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	log.Log(level, message, errorFields(err)...)
	log.Debug("the error of a backend", zap.Error(err))
}

// errorFields returns the log fields of an error of a backend, without its text.
func errorFields(err error) []zap.Field {
	fields := []zap.Field{zap.String("kind", string(backends.KindOf(err)))}
	if broken, ok := errors.AsType[*adapterError](err); ok {
		fields = append(fields, zap.String("error", broken.what))
	}
	answer, ok := errors.AsType[*backends.Error](err)
	if !ok {
		return fields
	}
	fields = append(fields, zap.String("reason", string(answer.Reason)))
	if answer.Status != 0 {
		fields = append(fields, zap.Int("status", answer.Status))
	}
	if isCode(answer.Code) {
		fields = append(fields, zap.String("code", answer.Code))
	}
	return fields
}

// isCode reports whether text is a code and not a sentence: 1 to 64 letters, digits, dots, colons,
// hyphens and underscores.
func isCode(text string) bool {
	return text != "" && len(text) <= 64 && !strings.ContainsFunc(text, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(".:-_", c)
	})
}

// logCopyError logs that results were not copied. It logs an error of the keeper with its text, and
// an error of a backend without.
func (c *core) logCopyError(level zapcore.Level, message string, rec *record.Record, err error) {
	if _, ok := errors.AsType[*backends.Error](err); ok {
		c.logBackendError(level, message, rec, err)
		return
	}
	c.store.Log.Log(level, message, zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.Error(err))
}
