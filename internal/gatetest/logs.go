package gatetest

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

func init() {
	caddy.RegisterModule(LogWriter{})
}

// LogWriter is the log of a Gate: it keeps every line in memory.
type LogWriter struct{}

// CaddyModule returns the Caddy module information.
func (LogWriter) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.logging.writers.gatetest", New: func() caddy.Module { return new(LogWriter) }}
}

// UnmarshalCaddyfile reads
//
//	output gatetest
func (LogWriter) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the writer's name
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

func (LogWriter) String() string { return "gatetest" }

// WriterKey implements caddy.WriterOpener.
func (LogWriter) WriterKey() string { return "gatetest" }

// OpenWriter implements caddy.WriterOpener.
func (LogWriter) OpenWriter() (io.WriteCloser, error) { return &logged, nil }

// logged is the log of this process.
var logged log

type log struct {
	mu    sync.Mutex
	lines [][]byte
	grown chan struct{} // closed at the next line
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, bytes.Clone(line))
	if l.grown != nil {
		close(l.grown)
		l.grown = nil
	}
	return len(line), nil
}

func (l *log) Close() error { return nil }

// from returns the lines from index n on, and a channel that is closed when
// there are more.
func (l *log) from(n int) ([][]byte, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	return l.lines[n:], l.grown
}

// length returns the number of lines.
func (l *log) length() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.lines)
}

// Line is one line of the log.
type Line map[string]any

// Text returns a field that is a string, or "".
func (l Line) Text(field string) string {
	text, _ := l[field].(string)
	return text
}

// Number returns a field that is a number, or 0.
func (l Line) Number(field string) float64 {
	number, _ := l[field].(float64)
	return number
}

// WaitLine returns the first line of this Gate for which fn is true. It waits
// if necessary, because a call is logged after its caller has the answer.
func (g *Gate) WaitLine(t testing.TB, fn func(Line) bool) Line {
	t.Helper()
	timeout := time.After(Timeout)
	for n := g.logFrom; ; {
		lines, grown := logged.from(n)
		for _, text := range lines {
			var line Line
			if json.Unmarshal(text, &line) == nil && fn(line) {
				return line
			}
		}
		n += len(lines)
		select {
		case <-grown:
		case <-timeout:
			t.Fatal("no matching line was logged")
		}
	}
}

// CallLine returns the only line of the call with this request id.
func (g *Gate) CallLine(t testing.TB, requestID string) Line {
	t.Helper()
	if requestID == "" {
		t.Fatal("the answer has no X-Request-Id")
	}
	return g.WaitLine(t, isCall(func(l Line) bool { return l.Text("request_id") == requestID }))
}

// CallLineOf returns the line of the only call for a model, for callers that
// disconnected without an answer.
func (g *Gate) CallLineOf(t testing.TB, model string) Line {
	t.Helper()
	return g.WaitLine(t, isCall(func(l Line) bool { return l.Text("model") == model }))
}

func isCall(fn func(Line) bool) func(Line) bool {
	return func(l Line) bool { return l.Text("msg") == "call" && fn(l) }
}

// CallLines returns the number of lines of the call with this request id.
func (g *Gate) CallLines(requestID string) int {
	return g.CountLines(isCall(func(l Line) bool { return l.Text("request_id") == requestID }))
}

// CountLines returns the number of lines of this Gate for which fn is true.
func (g *Gate) CountLines(fn func(Line) bool) (n int) {
	lines, _ := logged.from(g.logFrom)
	for _, text := range lines {
		var line Line
		if json.Unmarshal(text, &line) == nil && fn(line) {
			n++
		}
	}
	return n
}

// Logged reports whether the log of this Gate contains a text.
func (g *Gate) Logged(text string) bool {
	lines, _ := logged.from(g.logFrom)
	for _, line := range lines {
		if strings.Contains(string(line), text) {
			return true
		}
	}
	return false
}

// Interface guards.
var (
	_ caddy.WriterOpener    = LogWriter{}
	_ caddyfile.Unmarshaler = LogWriter{}
)
