package task

import (
	"errors"
	"fmt"
	"runtime"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/backends"
)

// adapterError is what an adapter has done and must not do.
type adapterError struct {
	what  string
	words string // of the adapter; they may be those of the service
}

func (e *adapterError) Error() string {
	if e.words == "" {
		return e.what
	}
	return e.what + ": " + e.words
}

var (
	errNoReference = &adapterError{what: "the adapter returned no reference"}
	errNoResults   = &adapterError{what: "the adapter tells of a success without results"}
)

// panicked is the error of an adapter that has panicked. What the runtime says of
// that holds nothing of anybody's.
func panicked(p any) error {
	e := &adapterError{what: "the adapter panicked", words: fmt.Sprint(p)}
	if of, is := p.(runtime.Error); is {
		e.what, e.words = e.what+": "+of.Error(), ""
	}
	return e
}

// logBackendError logs that a backend has not done what it was asked. Its words may repeat
// a prompt or an address that is signed: they are told where the log is set to
// debug, and nowhere else.
func (e *Engine) logBackendError(level zapcore.Level, message string, rec *record, err error) {
	log := e.log.With(zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
	log.Log(level, message, errorFields(err)...)
	log.Debug("what a backend has said", zap.Error(err))
}

// errorFields returns what an error of a backend says, without its words.
func errorFields(err error) []zap.Field {
	fields := []zap.Field{zap.String("kind", string(backends.KindOf(err)))}
	if lapse, is := errors.AsType[*adapterError](err); is {
		fields = append(fields, zap.String("error", lapse.what))
	}
	said, is := errors.AsType[*backends.Error](err)
	if !is {
		return fields
	}
	fields = append(fields, zap.String("reason", string(said.Reason)))
	if said.Status != 0 {
		fields = append(fields, zap.Int("status", said.Status))
	}
	if isCode(said.Code) {
		fields = append(fields, zap.String("code", said.Code))
	}
	return fields
}

// isCode tells whether text is a code rather than words: 1 to 64 characters of
// letters, digits, dots, colons, hyphens and underscores.
func isCode(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != ':' && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// logCopyError logs that results are not copied. Why not is the keeper's to say, unless
// it was a backend that did not give them.
func (e *Engine) logCopyError(level zapcore.Level, message string, rec *record, err error) {
	if _, is := errors.AsType[*backends.Error](err); is {
		e.logBackendError(level, message, rec, err)
		return
	}
	e.log.Log(level, message, zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.Error(err))
}
