// Package redactlog has the log encoder modelgate_redact, a Caddy module. It hides
// credentials in each entry and passes the entry to another encoder, which writes it.
//
// [Encoder] is the module. Package redact decides what is a credential. This package
// finds texts and headers in a log entry, and hides the secret part of links to results.
package redactlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/internal/media"
	"github.com/caddy-modelgate/modelgate/internal/redact"
	"github.com/caddy-modelgate/modelgate/settings"
)

func init() {
	caddy.RegisterModule(new(Encoder))
}

// Encoder is a log encoder that hides credentials before another encoder writes the
// entry. It hides the values of headers with the name of a credential. In all texts of
// the entry it hides query parameters with such a name, API keys, and the secret part of
// links to results. Case and separators in names do not matter.
type Encoder struct {
	// WrappedRaw is the encoder that writes the entry. Default: `json`.
	WrappedRaw json.RawMessage `json:"wrap,omitempty" caddy:"namespace=caddy.logging.encoders inline_key=format"`

	redactedObject `json:"-"`
	wrapped        zapcore.Encoder
}

// CaddyModule returns the Caddy module information.
func (*Encoder) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.encoders.modelgate_redact", New: func() caddy.Module { return new(Encoder) }}
}

// Provision loads the wrapped encoder.
func (e *Encoder) Provision(ctx caddy.Context) error {
	if e.WrappedRaw == nil {
		e.WrappedRaw = json.RawMessage(`{"format":"json"}`)
	}
	module, err := ctx.LoadModule(e, "WrappedRaw")
	if err != nil {
		return fmt.Errorf("wrap: %w", err)
	}
	e.wrapped = module.(zapcore.Encoder)
	e.ObjectEncoder = e.wrapped
	return nil
}

// ConfigureDefaultFormat implements caddy.ConfiguresFormatterDefault for the
// wrapped encoder.
func (e *Encoder) ConfigureDefaultFormat(writer caddy.WriterOpener) error {
	if wrapped, ok := e.wrapped.(caddy.ConfiguresFormatterDefault); ok {
		return wrapped.ConfigureDefaultFormat(writer)
	}
	return nil
}

// UnmarshalCaddyfile sets up the module from Caddyfile tokens:
//
//	format modelgate_redact {
//		wrap <encoder>
//	}
func (e *Encoder) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the module's name
	return settings.Block(d, map[string]settings.Reader{"wrap": func(d *caddyfile.Dispenser) error {
		if !d.NextArg() {
			return d.ArgErr()
		}
		name := d.Val()
		module, err := caddyfile.UnmarshalModule(d, "caddy.logging.encoders."+name)
		if err != nil {
			return err
		}
		encoder, ok := module.(zapcore.Encoder)
		if !ok {
			return d.Errf("%s is not a log encoder", name)
		}
		e.WrappedRaw = caddyconfig.JSONModuleObject(encoder, "format", name, nil)
		return nil
	}})
}

// Clone implements zapcore.Encoder.
func (e *Encoder) Clone() zapcore.Encoder {
	clone := &Encoder{redactedObject: e.redactedObject}
	clone.wrapped = e.wrapped.Clone()
	clone.ObjectEncoder = clone.wrapped
	return clone
}

// EncodeEntry implements zapcore.Encoder.
func (e *Encoder) EncodeEntry(entry zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	entry.Message = redactText(entry.Message)
	wrapped := e.wrapped.Clone() // because AddTo adds fields to the encoder
	object := redactedObject{wrapped, e.headers}
	for i := range fields {
		fields[i].AddTo(object)
	}
	return wrapped.EncodeEntry(entry, nil)
}

// redactText hides the credentials in a text.
func redactText(text string) string {
	text = redact.Text(text)
	if !strings.Contains(text, media.Path) {
		return text
	}
	parts := strings.Split(text, media.Path)
	for i, part := range parts[1:] {
		end := strings.IndexAny(part, "/?#\"' ")
		if end < 0 {
			end = len(part)
		}
		if end > 0 {
			parts[i+1] = redact.Replacement + part[end:]
		}
	}
	return strings.Join(parts, media.Path)
}

// redactedObject hides credentials in the fields of an object.
type redactedObject struct {
	zapcore.ObjectEncoder
	headers bool // keys are the names of headers
}

// under reports whether the keys of the value of a field are names of headers. In Caddy's
// entries these fields are headers, resp_headers and push_headers, and env, which has the
// headers for FastCGI.
func (o redactedObject) under(key string) bool {
	return o.headers || strings.HasSuffix(key, "headers") || strings.HasSuffix(key, "header") || key == "env"
}

// hides reports whether the whole value of a field is hidden.
func (o redactedObject) hides(key string) bool { return o.headers && redact.Name(key) }

// AddString implements zapcore.ObjectEncoder.
func (o redactedObject) AddString(key, value string) {
	if o.hides(key) {
		value = redact.Replacement
	}
	o.ObjectEncoder.AddString(key, redactText(value))
}

// AddByteString implements zapcore.ObjectEncoder.
func (o redactedObject) AddByteString(key string, value []byte) { o.AddString(key, string(value)) }

// AddArray implements zapcore.ObjectEncoder.
func (o redactedObject) AddArray(key string, value zapcore.ArrayMarshaler) error {
	return o.ObjectEncoder.AddArray(key, redactedElements(value, o.under(key), o.hides(key)))
}

// AddObject implements zapcore.ObjectEncoder.
func (o redactedObject) AddObject(key string, value zapcore.ObjectMarshaler) error {
	if o.hides(key) {
		o.ObjectEncoder.AddString(key, redact.Replacement)
		return nil
	}
	return o.ObjectEncoder.AddObject(key, redactedFields(value, o.under(key)))
}

// AddReflected implements zapcore.ObjectEncoder.
func (o redactedObject) AddReflected(key string, value any) error {
	if o.hides(key) {
		o.ObjectEncoder.AddString(key, redact.Replacement)
		return nil
	}
	return o.ObjectEncoder.AddReflected(key, redactValue(value, o.under(key)))
}

// redactedFields returns the fields of an object, without credentials.
func redactedFields(fields zapcore.ObjectMarshaler, headers bool) zapcore.ObjectMarshaler {
	return zapcore.ObjectMarshalerFunc(func(to zapcore.ObjectEncoder) error {
		return fields.MarshalLogObject(redactedObject{to, headers})
	})
}

// redactedElements returns the elements of an array, without credentials. If the whole
// array is hidden, it returns one replacement.
func redactedElements(elements zapcore.ArrayMarshaler, headers, hidden bool) zapcore.ArrayMarshaler {
	return zapcore.ArrayMarshalerFunc(func(to zapcore.ArrayEncoder) error {
		if hidden {
			to.AppendString(redact.Replacement)
			return nil
		}
		return elements.MarshalLogArray(redactedArray{to, headers})
	})
}

// redactedArray hides credentials in the elements of an array.
type redactedArray struct {
	zapcore.ArrayEncoder
	headers bool
}

// AppendString implements zapcore.ArrayEncoder.
func (a redactedArray) AppendString(value string) { a.ArrayEncoder.AppendString(redactText(value)) }

// AppendByteString implements zapcore.ArrayEncoder.
func (a redactedArray) AppendByteString(value []byte) { a.AppendString(string(value)) }

// AppendArray implements zapcore.ArrayEncoder.
func (a redactedArray) AppendArray(value zapcore.ArrayMarshaler) error {
	return a.ArrayEncoder.AppendArray(redactedElements(value, a.headers, false))
}

// AppendObject implements zapcore.ArrayEncoder.
func (a redactedArray) AppendObject(value zapcore.ObjectMarshaler) error {
	return a.ArrayEncoder.AppendObject(redactedFields(value, a.headers))
}

// AppendReflected implements zapcore.ArrayEncoder.
func (a redactedArray) AppendReflected(value any) error {
	return a.ArrayEncoder.AppendReflected(redactValue(value, a.headers))
}

// redactValue returns the decoded JSON of a value, without credentials. If the value has
// no JSON, redactValue returns it unchanged, and the wrapped encoder reports the error.
func redactValue(value any, headers bool) any {
	text, err := json.Marshal(value)
	if err != nil {
		return value
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return value
	}
	return redactDecoded(plain, headers)
}

func redactDecoded(value any, headers bool) any {
	switch v := value.(type) {
	case string:
		return redactText(v)
	case []any:
		for i := range v {
			v[i] = redactDecoded(v[i], headers)
		}
	case map[string]any:
		for key, inner := range v {
			o := redactedObject{headers: headers}
			if o.hides(key) {
				v[key] = redact.Replacement
			} else {
				v[key] = redactDecoded(inner, o.under(key))
			}
		}
	}
	return value
}

// Interface guards
var (
	_ caddy.Provisioner                = (*Encoder)(nil)
	_ caddyfile.Unmarshaler            = (*Encoder)(nil)
	_ caddy.ConfiguresFormatterDefault = (*Encoder)(nil)
	_ zapcore.Encoder                  = (*Encoder)(nil)
)
