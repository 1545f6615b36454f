package task

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
)

// pollTimeout is how long a backend may take to answer any question but a submission.
const pollTimeout = 30 * time.Second

// adapterError reports that an adapter has broken its contract.
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

// catchPanic makes the panic of an adapter its error, if it is deferred. The message of a runtime
// error holds no data of a caller.
func catchPanic(err *error) {
	p := recover()
	if p == nil {
		return
	}
	e := &adapterError{what: "the adapter panicked", words: fmt.Sprint(p)}
	if of, is := p.(runtime.Error); is {
		e.what, e.words = e.what+": "+of.Error(), ""
	}
	*err = e
}

// logBackendError logs the error of a backend. Its text may repeat a prompt or a signed URL: it is
// logged at level debug only.
func (c *core) logBackendError(level zapcore.Level, message string, rec *record.Record, err error) {
	log := c.store.Log.With(zap.String("task_id", rec.ID), zap.String("backend", rec.Backend))
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

// isCode reports whether text is a code and not a sentence: 1 to 64 letters, digits, dots, colons,
// hyphens and underscores.
func isCode(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != ':' && c != '-' && c != '_' {
			return false
		}
	}
	return text != "" && len(text) <= 64
}

// logCopyError logs that results are not copied. The error of the keeper is logged as it is, that
// of a backend without its text.
func (c *core) logCopyError(level zapcore.Level, message string, rec *record.Record, err error) {
	if _, is := errors.AsType[*backends.Error](err); is {
		c.logBackendError(level, message, rec, err)
		return
	}
	c.store.Log.Log(level, message, zap.String("task_id", rec.ID), zap.String("backend", rec.Backend), zap.Error(err))
}

var errCannotCancel = errors.New("the backend cannot end jobs")

// cancel asks a backend to end a job.
func (c *core) cancel(b Backend, ref backends.Ref) (err error) {
	defer catchPanic(&err)
	backend, can := b.Backend.(backends.Canceler)
	if !can {
		return errCannotCancel
	}
	ctx, cancel := context.WithTimeout(c.store.Life, pollTimeout)
	defer cancel()
	return backend.Cancel(ctx, ref)
}
