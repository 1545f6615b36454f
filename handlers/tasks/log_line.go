package tasks

import (
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// report writes the log line of a submission. The line contains neither prompts nor links.
func (s *submission) report(err error) {
	if entry := s.tasks.logger.Check(zapcore.InfoLevel, "task"); entry != nil {
		entry.Write(zap.Inline(&line{s, err}))
	}
}

// line is the log line of a submission. Duration is in seconds.
type line struct {
	*submission
	err error
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (l *line) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("request_id", l.id)
	enc.AddString("route", l.form.name)
	enc.AddString("user_id", l.principal.UserID)
	enc.AddString("key_id", l.principal.KeyID)
	if g := &l.generation; g.Model != "" {
		enc.AddString("model", g.Model)
		enc.AddString("family", g.Family)
		enc.AddString("backend", g.Backend)
		enc.AddString("hold", g.Quote.Hold.String())
	}
	if l.dryRun {
		enc.AddBool("dry_run", true)
	}
	if l.task != nil {
		enc.AddString("task_id", l.task.ID)
		enc.AddString("task_status", string(l.task.Status))
		enc.AddBool("replayed", l.replayed)
	}
	switch {
	case l.err == nil:
		enc.AddInt("status", 200)
	case l.disconnected(l.err):
		enc.AddInt("status", statusDisconnected)
	default:
		f := fault.OrInternal(l.err, l.id)
		enc.AddInt("status", f.Status())
		enc.AddString("code", string(f.Code))
	}
	enc.AddInt("bytes_in", l.bytes)
	enc.AddFloat64("duration", time.Since(l.started).Seconds())
	return nil
}
