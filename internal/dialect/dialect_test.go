package dialect

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

func TestARefusalInEachDialect(t *testing.T) {
	t.Parallel()
	f := fault.At(fault.InvalidParameter, "output.duration", `must be "5" or <10>`)
	for dialect, want := range map[Dialect]string{
		Anthropic: `{"type":"error","error":{"type":"invalid_request_error","message":"must be \"5\" or <10>"},"request_id":"req_1"}`,
		OpenAI:    `{"error":{"code":"INVALID_PARAMETER","message":"must be \"5\" or <10>","type":"invalid_request_error","param":"output.duration"}}`,
		Platform: `{"code":"INVALID_PARAMETER","message":"must be \"5\" or <10>",` +
			`"error":{"code":"INVALID_PARAMETER","message":"must be \"5\" or <10>","type":"invalid_request_error","param":"output.duration"}}`,
		Console: `{"success":false,"message":"must be \"5\" or <10>","code":"INVALID_PARAMETER","param":"output.duration"}`,
	} {
		if got := string(dialect.Body(f, "req_1")); got != want {
			t.Errorf("dialect %d:\n%s\nwant\n%s", dialect, got, want)
		}
	}
}

func TestADuplicateSessionNamesTheFirstTask(t *testing.T) {
	t.Parallel()
	f := fault.At(fault.DuplicateSessionID, "session_id", "taken")
	f.Task = "task_1"
	want := `{"code":"DUPLICATE_SESSION_ID","message":"taken","task_id":"task_1",` +
		`"error":{"code":"DUPLICATE_SESSION_ID","message":"taken","type":"invalid_request_error","param":"session_id"}}`
	if got := string(Platform.Body(f, "req_1")); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestEachStatusHasItsTypeInEachDialect(t *testing.T) {
	t.Parallel()
	for status, want := range map[int][2]string{ // messages, completions
		400: {"invalid_request_error", "invalid_request_error"},
		401: {"authentication_error", "authentication_error"},
		402: {"billing_error", "insufficient_quota"},
		403: {"permission_error", "invalid_request_error"},
		404: {"not_found_error", "invalid_request_error"},
		405: {"invalid_request_error", "invalid_request_error"},
		408: {"invalid_request_error", "invalid_request_error"},
		409: {"invalid_request_error", "invalid_request_error"},
		413: {"request_too_large", "invalid_request_error"},
		415: {"invalid_request_error", "invalid_request_error"},
		422: {"invalid_request_error", "invalid_request_error"},
		429: {"rate_limit_error", "rate_limit_error"},
		500: {"api_error", "server_error"},
		502: {"api_error", "server_error"},
		503: {"overloaded_error", "server_error"},
		504: {"timeout_error", "server_error"},
		529: {"overloaded_error", "server_error"},
	} {
		if got := [2]string{Anthropic.errorType(status), OpenAI.errorType(status)}; got != want {
			t.Errorf("%d is %v, want %v", status, got, want)
		}
	}
}

func TestAnEventEndsAStreamInItsDialect(t *testing.T) {
	t.Parallel()
	f := fault.New(fault.UpstreamTimeout, "late\n\ndata: forged")
	for dialect, prefix := range map[Dialect]string{Anthropic: "event: error\ndata: {", OpenAI: "data: {"} {
		event := string(dialect.Event(f, "req_1"))
		if !strings.HasPrefix(event, prefix) || !strings.HasSuffix(event, "}\n\n") || strings.Count(event, "\n\n") != 1 {
			t.Errorf("%q", event)
		}
		_, data, _ := strings.Cut(strings.TrimSpace(event), "data: ")
		if !json.Valid([]byte(data)) {
			t.Errorf("%q contains no JSON", event)
		}
	}
}

func TestARefusalRemovesHeadersOfAnotherAnswer(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	for name, value := range map[string]string{
		"Content-Type": "text/html", "Content-Length": "7", "Content-Encoding": "gzip", "Content-Disposition": "attachment", "Etag": "x",
		"Last-Modified": "x", "Location": "https://elsewhere.example", "Request-Id": "req_backend", "X-Request-Id": "req_backend", "Server": "Caddy",
	} {
		w.Header().Set(name, value)
	}
	f := fault.New(fault.RateLimited, "slowly").After(1500 * time.Millisecond)
	Anthropic.Refuse(w, f, "req_ours")
	want := http.Header{
		"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(w.Body.Len())}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"},
		"X-Request-Id": {"req_ours"}, "Request-Id": {"req_ours"}, "Retry-After": {"2"}, "Server": {"Caddy"},
	}
	got := w.Result().Header
	for name := range want {
		if got.Get(name) != want.Get(name) {
			t.Errorf("%s: %q, want %q", name, got.Get(name), want.Get(name))
		}
	}
	if len(got) != len(want) {
		t.Errorf("headers %v", got)
	}
	if w.Code != 429 {
		t.Errorf("status %d", w.Code)
	}
}
