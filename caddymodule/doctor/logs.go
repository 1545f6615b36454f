package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/caddy-modelgate/modelgate/internal/media"
)

// checkLogs searches for logs that would contain the credentials of requests. For each log it
// encodes an entry such as Caddy's, with a marked credential in each place where callers and
// backends are known to put one. Then it searches for the marks in the output. It does not
// find credentials that a plugin or a directive such as log_append adds under other names.
func checkLogs(config any) []Finding {
	logs := get[map[string]any](config, "logging", "logs")
	if _, ok := logs["default"]; !ok {
		configured := logs
		logs = map[string]any{"default": map[string]any{}}
		maps.Copy(logs, configured)
	}
	links := !get[bool](config, "apps", "modelgate", "media", "off") && hasHandler(config, "modelgate_tasks")
	var findings []Finding
	add := func(level, name, what string) {
		findings = append(findings, Finding{level, "logging.logs." + name, what, "use this format: format modelgate_redact { wrap json }"})
	}
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		if takesNoRequests(logs[name]) {
			continue
		}
		shown, link, err := shownBy(logs[name], logsCredentials(config))
		switch {
		case err != nil:
			add("warning", name, "its format cannot be tested: "+err.Error())
		case len(shown) > 0:
			add("error", name, "this log contains credentials of requests and answers in clear: "+strings.Join(shown, ", "))
		}
		if links && link {
			add("warning", name, "this log contains links to results, and a link opens its result without a key")
		}
	}
	return findings
}

// logsCredentials reports whether a server logs the headers that Caddy hides by default.
func logsCredentials(config any) bool {
	for _, server := range get[map[string]any](config, "apps", "http", "servers") {
		if get[bool](server, "logs", "should_log_credentials") {
			return true
		}
	}
	return false
}

// The marks: a credential or the secret part of a link, and a credential in the form of
// an API key.
const (
	markedSecret = "modelgatedoctormark"
	markedKey    = "sk-" + markedSecret
)

// places are the known places of credentials in requests and answers: the name in a
// finding, and a function that puts the mark there.
var places = slices.Concat(
	placesOf("request header ", func(r *http.Request, _ http.Header, name string) { r.Header[name] = []string{markedSecret} },
		"Authorization", "Cookie", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Goog-Api-Key", "X_Api_Key", "Stripe-Signature"),
	placesOf("query parameter ", func(r *http.Request, _ http.Header, name string) { r.RequestURI += "?a=b&" + name + "=" + markedSecret },
		"key", "Key", "api_key", "apikey", "access_token", "token", "sign", "code", "session"),
	placesOf("query parameter in Referer ", func(r *http.Request, _ http.Header, name string) {
		r.Header["Referer"] = []string{"https://example.com/?" + name + "=" + markedSecret}
	}, "key", "access_token"),
	placesOf("an API key in the request header ", func(r *http.Request, _ http.Header, name string) { r.Header[name] = []string{markedKey} }, "X-Note"),
	placesOf("an API key in the ", func(r *http.Request, _ http.Header, _ string) { r.RequestURI += "/" + markedKey }, "path"),
	placesOf("response header ", func(_ *http.Request, answer http.Header, name string) { answer[name] = []string{markedSecret} },
		"Set-Cookie", "X-Api-Key", "X-Debug-Key"),
	placesOf("an API key in the response header ", func(_ *http.Request, answer http.Header, name string) { answer[name] = []string{markedKey} }, "X-Note"),
)

// place is a place that can contain a credential.
type place struct {
	name string
	put  func(r *http.Request, answer http.Header)
}

func placesOf(kind string, put func(r *http.Request, answer http.Header, name string), names ...string) (list []place) {
	for _, name := range names {
		list = append(list, place{kind + name, func(r *http.Request, answer http.Header) { put(r, answer, name) }})
	}
	return list
}

// shownBy returns the places whose content a log would contain, and whether it would
// contain a link to a result.
func shownBy(log any, credentials bool) (shown []string, link bool, err error) {
	encoder, stop, err := encoderOf(log)
	if err != nil {
		return nil, false, err
	}
	defer stop()
	shows := func(put func(*http.Request, http.Header)) bool {
		r := &http.Request{Method: http.MethodPost, Proto: "HTTP/1.1", Host: "example.com", RequestURI: "/v1/messages", RemoteAddr: "192.0.2.1:1", Header: http.Header{}}
		answer := http.Header{"Content-Type": {"application/json"}}
		put(r, answer)
		line, errEncode := encoder.EncodeEntry(zapcore.Entry{Level: zap.InfoLevel, LoggerName: "http.log.access", Message: "handled request"}, []zapcore.Field{
			zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r, ShouldLogCredentials: credentials}),
			zap.Int("status", http.StatusOK),
			zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: answer, ShouldLogCredentials: credentials}),
		})
		if errEncode != nil {
			err = errEncode
			return false
		}
		defer line.Free()
		return strings.Contains(line.String(), markedSecret)
	}
	for _, p := range places {
		if shows(p.put) {
			shown = append(shown, p.name)
		}
	}
	link = shows(func(r *http.Request, _ http.Header) { r.RequestURI = media.Path + markedSecret + "/video-1.mp4" })
	return shown, link, err
}

// encoderOf creates the encoder of a log. The caller must call stop after its use.
func encoderOf(log any) (encoder zapcore.Encoder, stop func(), err error) {
	raw, err := json.Marshal(at(log, "encoder"))
	if err != nil || string(raw) == "null" {
		raw = []byte(`{"format":"json"}`)
	}
	ctx, stop := caddy.NewContext(caddy.Context{Context: context.Background()})
	holder := struct {
		Encoder json.RawMessage `caddy:"namespace=caddy.logging.encoders inline_key=format"`
	}{raw}
	module, err := ctx.LoadModule(&holder, "Encoder")
	if err == nil {
		var ok bool
		if encoder, ok = module.(zapcore.Encoder); !ok {
			err = fmt.Errorf("%T is not a log encoder", module)
		}
	}
	if err != nil {
		stop()
	}
	return encoder, stop, err
}
