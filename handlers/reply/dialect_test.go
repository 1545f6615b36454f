package reply

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/dialect"
)

func TestDialectOf(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]dialect.Dialect{
		"/v1/messages": dialect.Anthropic, "/v1/messages/count_tokens": dialect.Anthropic, "/V1/Messages": dialect.Anthropic, "//v1//messages/": dialect.Anthropic, "/v1/m%65ssages": dialect.Anthropic,
		"/v1/completions": dialect.OpenAI, "/v1/chat/completions": dialect.OpenAI, "/v1/messagesx": dialect.OpenAI, "/v1": dialect.OpenAI, "/": dialect.OpenAI, "/v1/models": dialect.OpenAI,
		"/v1/platform/video": dialect.Platform, "/v1/PLATFORM": dialect.Platform, "/v1/platform%2Ftasks/x": dialect.Platform, "/v1/platforms": dialect.OpenAI,
		"/api": dialect.Console, "/api/user/login": dialect.Console, "/API/x": dialect.Console, "/x/../api/x": dialect.Console, "/apis": dialect.OpenAI,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://gate"+path, nil)
		if got := DialectOf(r, "anthropic-version"); got != want {
			t.Errorf("%s has the dialect %d, want %d", path, got, want)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/models/m", nil)
	r.Header.Set("Anthropic-Version", "2023-06-01")
	if DialectOf(r, "anthropic-version") != dialect.Anthropic {
		t.Error("models with a version header do not have the anthropic dialect")
	}
}
