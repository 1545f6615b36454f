package redact_test

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/redact"
)

func TestNamesOfCredentials(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "Set-Cookie", "X-Api-Key", "x_api_key", "X_Api_Key", "Api-Key", "apikey", "APIKEY",
		"Key", "key", "key[]", "access_token", "accessToken", "X-Auth-Token", "X-Goog-Api-Key", "Stripe-Signature", "Webhook-Signature", "sign",
		"X-Amz-Credential", "X-Amz-Security-Token", "client_secret", "Password", "X-Debug-Key", "HTTP_X_API_KEY", "Cf-Access-Jwt-Assertion", "api.key",
		"X-Secrets", "X-Tokens", "api_keys", "keys[]", "X-Cookies", "passwords", "otp", "X-TOTP", "session", "X-Sessions",
	} {
		if !redact.Name(name) {
			t.Errorf("%s is not recognised", name)
		}
	}
	for _, name := range []string{
		"", "Idempotency-Key", "sign_type", "max_tokens", "Anthropic-Ratelimit-Tokens-Remaining", "Content-Type", "model", "Keep-Alive", "X-Request-Id", "limit",
		"X-Input-Tokens", "thinking.budget_tokens", "s", "x-s", "code",
	} {
		if redact.Name(name) {
			t.Errorf("%s is treated as a credential", name)
		}
	}
}

const key = "sk-abcdefghijklmnopqrstuvwxyz"

func TestCredentialsInTextsAreReplaced(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"/v1/messages?access_token=abc&a=b":               "/v1/messages?access_token=REDACTED&a=b",
		"/v1/messages?apikey=abc":                         "/v1/messages?apikey=REDACTED",
		"/v1/messages?Key=abc#top":                        "/v1/messages?Key=REDACTED#top",
		"/?a=b;api-key=abc;c=d":                           "/?a=b;api-key=REDACTED;c=d",
		"/?key=a=b=c&d=e":                                 "/?key=REDACTED&d=e",
		"/?key=&d=e":                                      "/?key=&d=e",
		"/?%6Bey=abc&d=e":                                 "/?key=REDACTED&d=e",
		"/?api%5Fkey=abc":                                 "/?api%5Fkey=REDACTED",
		"/login?next=%2Fx%3Fkey%3Dabc":                    "/login?next=/x?key=REDACTED",
		"/login?next=%252Fx%253Fkey%253Dabc":              "/login?next=/x?key=REDACTED",
		"/v1/" + key + "/x":                               "/v1/REDACTED/x",
		"/v1/sk%2Dabcdefghijklmnop":                       "/v1/REDACTED",
		"Bearer abcdefghijklmnopqrstuvwxyz":               "Bearer REDACTED",
		"bearer authentication is required":               "bearer authentication is required",
		"the key " + key + ", which":                      "the key REDACTED, which",
		strings.ToUpper(key):                              "REDACTED",
		"sk-a and " + key + " and " + key:                 "sk-a and REDACTED and REDACTED",
		"mgat_abcdefghijklmnop":                           "REDACTED",
		"whsec_abcdefghijklmnop":                          "REDACTED",
		"a task-force-of-many-people":                     "a task-force-of-many-people",
		"/api/pay/notify?money=1&sign=x&sign_type=MD5":    "/api/pay/notify?money=1&sign=REDACTED&sign_type=MD5",
		"/v1/platform/tasks?limit=5&after=100%25":         "/v1/platform/tasks?limit=5&after=100%25",
		"/v1/messages?model=gpt%2D4&note=%zz":             "/v1/messages?model=gpt%2D4&note=%zz",
		"https://x.example/cb?code=1&secret=s%26more&z=1": "https://x.example/cb?code=REDACTED&secret=REDACTED&z=1",
		"/?reset_code=1&otp=2&session=3&state=4":          "/?reset_code=REDACTED&otp=REDACTED&session=REDACTED&state=4",
		"/?country_code=DE&status-code=404&codec=h264":    "/?country_code=DE&status-code=404&codec=h264",
		"http://user:pass@x.example/a@b?c=d@e":            "http://REDACTED@x.example/a@b?c=d@e",
		"postgres://u:p@ss@db.example:5432":               "postgres://REDACTED@db.example:5432",
		"/?next=https%3A%2F%2Fu%3Ap%40x.example%2Fa":      "/?next=https://REDACTED@x.example/a",
		"mail to a@b.example, https://x.example":          "mail to a@b.example, https://x.example",
		"https://@x.example and ://u@":                    "https://@x.example and ://REDACTED@",
		"a=b; modelgate_session_id=abcdef; theme=dark":    "a=b; modelgate_session_id=REDACTED; theme=dark",
		"": "", "=": "=", "%": "%", "?key=%": "?key=REDACTED",
	} {
		if got := redact.Text(text); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func FuzzTextReplacesAKeyAnywhere(f *testing.F) {
	f.Add("/v1/messages?key=", "&a=b")
	f.Add("%73k-", "%")
	f.Fuzz(func(t *testing.T, before, after string) {
		text := redact.Text(before + "?key=hushhushhush&" + after)
		if strings.Contains(text, "hushhushhush") && !strings.Contains(before+after, "hush") {
			t.Errorf("%q is in %q", "hushhushhush", text)
		}
	})
}

// TestTextIsLinear redacts texts of 4 MiB, because callers determine what is logged. This
// takes milliseconds if Text is linear, and hours otherwise.
func TestTextIsLinear(t *testing.T) {
	t.Parallel()
	for _, part := range []string{"s", "=", "a=", "%", "%25", "sk-", "ask-", "?key=a&", key + " ", "bearer ", "key=%6Bey%3D", "://", "://u@", "@", "a://@"} {
		redact.Text(strings.Repeat(part, 4<<20/len(part)))
	}
}

func BenchmarkText(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		redact.Text("/v1/messages")
		redact.Text("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36")
		redact.Text("2023-06-01")
		redact.Text("claude-sonnet-4-5")
	}
}

func BenchmarkName(b *testing.B) {
	names := []string{"Accept", "Content-Type", "User-Agent", "X-Api-Key", "X-Stainless-Retry-Count", "Anthropic-Version", "X-Forwarded-For", "X-Forwarded-Proto"}
	b.ReportAllocs()
	for b.Loop() {
		for _, name := range names {
			redact.Name(name)
		}
	}
}
