package demo

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Lines))
}

// Lines is a log encoder for a terminal. It writes one short line for each model call and
// for each submission of a task. It writes nothing for other entries: another log must
// write them. Amounts are in dollars.
type Lines struct {
	// Whether the status is green, or red for an error. Default: false.
	Color bool `json:"color,omitempty"`

	*zapcore.MapObjectEncoder `json:"-"`
}

// CaddyModule returns the Caddy module information.
func (*Lines) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  "caddy.logging.encoders.modelgate_demo",
		New: func() caddy.Module { return &Lines{MapObjectEncoder: zapcore.NewMapObjectEncoder()} },
	}
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	format modelgate_demo {
//		color [on|off]
//	}
func (l *Lines) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	return settings.Block(d, map[string]settings.Reader{"color": settings.OnOff(&l.Color)})
}

// Clone implements zapcore.Encoder.
func (l *Lines) Clone() zapcore.Encoder {
	clone := &Lines{Color: l.Color, MapObjectEncoder: zapcore.NewMapObjectEncoder()}
	maps.Copy(clone.Fields, l.Fields)
	return clone
}

// paths are the paths of the routes that log calls and tasks.
var paths = map[string]string{ //nolint:gosec // routes of tokens are no credentials
	"messages": "/v1/messages", "count_tokens": "/v1/messages/count_tokens",
	"chat": "/v1/chat/completions", "completions": "/v1/completions",
	"images": "/v1/images/generations", "image_edits": "/v1/images/edits", "speech": "/v1/audio/speech",
	"transcriptions": "/v1/audio/transcriptions", "translations": "/v1/audio/translations",
	"response": "/v1/responses/{id}", "conversation": "/v1/conversations",
	"responses": "/v1/responses", "input_tokens": "/v1/responses/input_tokens", "compact": "/v1/responses/compact",
	"embeddings": "/v1/embeddings", "moderations": "/v1/moderations", "rerank": "/v1/rerank",
	"image": "/v1/platform/image", "video": "/v1/platform/video", "generations": "/v1/video/generations",
	"videos": "/v1/videos", "remix": "/v1/videos/{id}/remix",
}

var buffers = buffer.NewPool()

// EncodeEntry implements zapcore.Encoder.
func (l *Lines) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	out := buffers.Get()
	if entry.Message != "call" && entry.Message != "task" {
		return out, nil
	}
	of := l.Clone().(*Lines)
	for i := range fields {
		fields[i].AddTo(of)
	}
	out.AppendString(of.line(entry.Time) + "\n")
	return out, nil
}

// line returns the line of a call or of a task.
func (l *Lines) line(at time.Time) string {
	route := l.word("route")
	path, ok := paths[route]
	if !ok {
		path = route
	}
	method := cmp.Or(l.word("method"), "POST")
	parts := []string{at.Format(time.TimeOnly), method + " " + path, l.status(), l.word("model")}
	switch ended := l.word("ended"); {
	case l.word("code") != "":
		parts = append(parts, l.word("code"))
	case ended != "complete":
		parts = append(parts, ended)
	}
	in := l.sum("input", "cache_read", "cache_write_5m", "cache_write_1h", "audio_input", "image_input")
	out := l.sum("output", "reasoning", "audio_output", "image_output")
	if in+out > 0 {
		parts = append(parts, fmt.Sprintf("%d in / %d out", in, out))
	}
	if cost := l.word("cost"); cost != "" {
		parts = append(parts, "$"+cost)
	}
	if hold := l.word("hold"); hold != "" {
		parts = append(parts, "$"+hold+" held")
	}
	seconds, _ := l.Fields["duration"].(float64)
	parts = append(parts, fmt.Sprintf("%.0f ms", seconds*1000))
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), "  ")
}

// status returns the status, with its color.
func (l *Lines) status() string {
	text := fmt.Sprint(l.Fields["status"])
	switch {
	case !l.Color:
		return text
	case text < "400":
		return green + text + plain
	}
	return red + text + plain
}

// word returns the text of a field without control characters.
func (l *Lines) word(name string) string {
	text, _ := l.Fields[name].(string)
	return visible(text)
}

// sum adds up the fields that are numbers.
func (l *Lines) sum(names ...string) (sum int64) {
	for _, name := range names {
		n, _ := l.Fields[name].(int64)
		sum += n
	}
	return sum
}

// Escape sequences of terminals.
const (
	bold  = "\x1b[1m"
	green = "\x1b[32m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

// visible replaces characters that are not visible, so that a caller cannot send control
// sequences to the terminal.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// Interface guards.
var (
	_ zapcore.Encoder       = (*Lines)(nil)
	_ caddyfile.Unmarshaler = (*Lines)(nil)
)
