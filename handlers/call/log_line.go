package call

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// conclusion sets the status and the times of a call that has ended.
func (c *call) conclusion() {
	c.duration = time.Since(c.started)
	a := c.answer
	if a != nil && !a.firstByte.IsZero() {
		c.firstByte = a.firstByte.Sub(c.started)
	}
	switch {
	case c.status != 0:
	case a != nil && a.passed:
		c.status = a.status
	case c.refusal != nil:
		c.status = c.refusal.Status()
	}
}

// report writes the call's one log line and counts it. The line is an error if the
// backend refuses the operator's credential or account, because only the operator can help.
func (c *call) report() {
	a := c.answer
	switch {
	case a == nil || c.ended == usage.Refused && a.status == 0:
		c.route.metrics.Refused(string(c.refusal.Code))
	case c.job != nil: // it is counted when it is settled
	default:
		c.route.metrics.Ended(c.ended, c.basis, c.firstByte, c.duration, c.tokens)
	}

	level := zapcore.InfoLevel
	if a != nil && c.backend != "" && backendFaults[a.status] || c.fallbacks.fault {
		level = zapcore.ErrorLevel
	}
	if entry := c.block.logger.Check(level, "call"); entry != nil {
		entry.Write(zap.Inline((*line)(c)))
	}
}

// maxMethod bounds the method of a request in the log: a caller chooses it.
const maxMethod = 16

// line marshals a call as its log line.
type line call

// MarshalLogObject implements zapcore.ObjectMarshaler. Times are in seconds.
func (l *line) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	enc.AddString("request_id", l.id)
	enc.AddString("route", l.route.name)
	if l.method != "" && l.method != http.MethodPost {
		enc.AddString("method", l.method)
	}
	enc.AddString("ended", string(l.ended))
	enc.AddString("usage", string(l.basis))
	if l.rule != "" {
		enc.AddString("rule", string(l.rule))
	}
	enc.AddInt("status", l.status)
	if l.principal != nil {
		enc.AddString("user_id", l.principal.UserID)
		enc.AddString("key_id", l.principal.KeyID)
	}
	if l.request.Model != "" {
		enc.AddString("model", l.request.Model)
		if l.asked != "" {
			enc.AddString("asked_model", l.asked)
		}
		enc.AddBool("stream", l.request.Stream)
	}
	if l.refusal != nil {
		enc.AddString("code", string(l.refusal.Code))
	}
	if l.failure != nil {
		enc.AddString("error", l.failure.Error())
	}
	if l.background != "" {
		enc.AddString("background", l.background)
	}
	if len(l.fallbacks.tried) > 0 {
		enc.AddString("fallback", l.fallbacks.String())
	}
	if l.answer != nil {
		if l.answer.status != 0 && l.answer.status != l.status {
			enc.AddInt("upstream_status", l.answer.status)
		}
		for kind, n := range l.tokens.ByKind() {
			if n > 0 {
				enc.AddInt64(usage.KindName(kind), n)
			}
		}
		if n := l.bill.counted; n > 0 {
			switch l.bill.units.Unit {
			case catalog.ImageUnit:
				enc.AddInt64("images", n)
			case catalog.CharacterUnit:
				enc.AddInt64("characters", n)
			case catalog.SecondUnit:
				enc.AddInt64("seconds", n)
			}
		}
		if l.bill.price != nil {
			enc.AddString("cost", l.bill.charged.String())
		}
		if l.bill.uncollected > 0 {
			enc.AddString("uncollected", l.bill.uncollected.String())
		}
		if l.bill.cut {
			enc.AddBool("usage_cut", true)
		}
		for _, served := range [...]struct{ name, word string }{
			{"service_tier", l.tier}, {"speed", l.speed}, {"inference_geo", l.geo},
		} {
			if !catalog.UsualService(served.word) {
				enc.AddString(served.name, served.word)
			}
		}
		enc.AddInt("bytes_in", l.bodyBytes)
		enc.AddInt64("bytes_out", l.answer.bytes)
		enc.AddFloat64("first_byte", l.firstByte.Seconds())
	}
	enc.AddFloat64("duration", l.duration.Seconds())
	return nil
}

// placeholder returns the values of the placeholders that Messages documents.
func (c *call) placeholder(key string) (any, bool) {
	name, ours := strings.CutPrefix(key, "http.modelgate.")
	if !ours {
		if key == "http.auth.user.id" && c.principal != nil {
			return c.principal.UserID, true
		}
		return nil, false
	}
	if name, ours = strings.CutPrefix(name, "usage."); ours {
		for kind, n := range c.tokens.ByKind() {
			if usage.KindName(kind) == name {
				return n, true
			}
		}
		return nil, false
	}
	if count, ours := strings.CutPrefix(name, "user_slot."); ours && c.principal != nil {
		return slotOf(c.principal.UserID, count)
	}
	switch name {
	case "key_id":
		if c.principal != nil {
			return c.principal.KeyID, true
		}
	case "request_id":
		return c.id, true
	case "model":
		return cmp.Or(c.asked, c.request.Model), true
	case "ended":
		return string(c.ended), true
	case "usage":
		return string(c.basis), true
	case "rule":
		return string(c.rule), true
	case "cost":
		return c.bill.charged.String(), true
	case "first_byte":
		return c.firstByte.Seconds(), true
	case "duration":
		return c.duration.Seconds(), true
	}
	return nil, false
}
