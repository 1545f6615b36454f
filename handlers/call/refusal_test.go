package call_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// refusal is the expected answer to a refused call.
type refusal struct {
	status  int
	kind    string // of the error, in the messages dialect
	code    fault.Code
	message string
	param   string
}

const badCredential = `the API key is missing or not valid; send it as "Authorization: Bearer sk-..." or "x-api-key: sk-..."`

var unauthorized = refusal{status: 401, kind: "authentication_error", code: fault.Unauthorized, message: badCredential}

// bodyIn returns the exact body of a refusal in the dialect of path.
func (want refusal) bodyIn(path, requestID string) string {
	quoted := fmt.Sprintf("%q", want.message)
	if strings.HasPrefix(path, messages) {
		return fmt.Sprintf(`{"type":"error","error":{"type":%q,"message":%s},"request_id":%q}`, want.kind, quoted, requestID)
	}
	kind := map[string]string{
		"authentication_error": "authentication_error", "billing_error": "insufficient_quota", "rate_limit_error": "rate_limit_error",
		"overloaded_error": "server_error", "timeout_error": "server_error", "api_error": "server_error",
	}[want.kind]
	if kind == "" {
		kind = "invalid_request_error"
	}
	param := "null"
	if want.param != "" {
		param = fmt.Sprintf("%q", want.param)
	}
	return fmt.Sprintf(`{"error":{"code":%q,"message":%s,"type":%q,"param":%s}}`, want.code, quoted, kind, param)
}

// check compares the whole answer with a refusal: status, headers and body.
func (want refusal) check(t *testing.T, path string, got gatetest.Answer) {
	t.Helper()
	if got.Status != want.status {
		t.Errorf("status %d, want %d", got.Status, want.status)
	}
	if body := want.bodyIn(path, got.RequestID()); got.Body != body {
		t.Errorf("body\n%s\nwant\n%s", got.Body, body)
	}
	if id := got.RequestID(); !strings.HasPrefix(id, "req_") || len(id) < 26 {
		t.Errorf("X-Request-Id %q", id)
	}
	wantHeaders := map[string]string{
		"Content-Type": "application/json", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
		"Request-Id": "", "WWW-Authenticate": "", "Content-Length": fmt.Sprint(len(got.Body)),
	}
	if strings.HasPrefix(path, messages) {
		wantHeaders["Request-Id"] = got.RequestID()
	}
	if want.status == http.StatusUnauthorized {
		wantHeaders["WWW-Authenticate"] = "Bearer"
	}
	for name, value := range wantHeaders {
		if got.Header.Get(name) != value {
			t.Errorf("%s: %q, want %q", name, got.Header.Get(name), value)
		}
	}
}

func TestEveryBadCredentialIsTheSame401InEachDialect(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	good, revoked, disabled := g.NewKey(t, nil), g.NewKey(t, nil), g.NewKey(t, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+revoked.ID+"/revoke", nil, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+disabled.UserID+"/disable", nil, nil)
	before := g.Backend.Total()
	other := "0"
	if strings.HasSuffix(good.Secret, other) {
		other = "1"
	}
	credentials := map[string]string{
		"none":               "",
		"empty":              "X-Api-Key:",
		"malformed":          "X-Api-Key: sk-invalid",
		"SQL":                "X-Api-Key: sk-' OR 1=1 --",
		"wrong checksum":     "X-Api-Key: " + good.Secret[:len(good.Secret)-1] + other,
		"other case":         "X-Api-Key: " + strings.ToUpper(good.Secret),
		"unknown":            "X-Api-Key: sk-00000000000000000000000000000000000000000003P9rQy",
		"revoked":            "X-Api-Key: " + revoked.Secret,
		"of a disabled user": "Authorization: Bearer " + disabled.Secret,
		"Basic":              "Authorization: Basic " + good.Secret,
		"no scheme":          "Authorization: " + good.Secret,
		"scheme alone":       "Authorization: Bearer",
		"two in one":         "Authorization: Bearer " + good.Secret + ", Bearer " + good.Secret,
		"in a cookie":        "Cookie: session=" + good.Secret,
		"access token":       "Authorization: Bearer 0123456789abcdef0123456789abcdef",
		"vendor's key":       "X-Api-Key: sk-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"very long":          "X-Api-Key: sk-" + strings.Repeat("a", 10_000),
	}
	for _, path := range []string{messages, countTokens, completions, chat} {
		for name, credential := range credentials {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				got := g.Do(t, http.MethodPost, path+"?key="+good.Secret, credential+"\nAnthropic-Version: 2023-06-01", bodyFor(path, "never", ""))
				unauthorized.check(t, path, got)
				line := g.CallLine(t, got.RequestID())
				if line.Text("ended") != "refused" || line.Text("usage") != "none" || line.Text("code") != "UNAUTHORIZED" {
					t.Errorf("logged %v", line)
				}
			})
		}
	}
	t.Cleanup(func() {
		if g.Backend.Total() != before {
			t.Error("a call without a credential reached the backend")
		}
	})
}

func TestEitherCredentialHeaderIsAcceptedUnlessTheyDiffer(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	one, two := g.NewKey(t, nil).Secret, g.NewKey(t, nil).Secret
	differ := refusal{400, "invalid_request_error", fault.InvalidParameter, "Authorization and x-api-key hold different credentials; send one", "Authorization"}
	twice := func(name string) refusal {
		return refusal{400, "invalid_request_error", fault.InvalidParameter, name + " is given more than once, with different values", name}
	}
	mixed := refusal{400, "invalid_request_error", fault.InvalidParameter, "x-api-key and an Authorization that is not a Bearer token contradict each other; send one credential", "Authorization"}
	for name, c := range map[string]struct {
		headers string
		want    refusal // zero: the call passes
	}{
		"bearer":                      {"Authorization: Bearer " + one, refusal{}},
		"lower-case scheme":           {"authorization: bearer   " + one, refusal{}},
		"x-api-key":                   {"x-api-key: " + one, refusal{}},
		"both equal":                  {"Authorization: Bearer " + one + "\nX-Api-Key: " + one, refusal{}},
		"repeated equal":              {"X-Api-Key: " + one + "\nX-Api-Key: " + one, refusal{}},
		"both, different":             {"Authorization: Bearer " + one + "\nX-Api-Key: " + two, differ},
		"one of them invalid":         {"Authorization: Bearer invalid\nX-Api-Key: " + one, differ},
		"x-api-key twice, different":  {"X-Api-Key: " + one + "\nX-Api-Key: " + two, twice("X-Api-Key")},
		"Bearer twice, different":     {"Authorization: Bearer " + one + "\nAuthorization: Bearer " + two, twice("Authorization")},
		"Basic beside x-api-key":      {"Authorization: Basic " + one + "\nX-Api-Key: " + one, mixed},
		"a bare key beside x-api-key": {"Authorization: " + one + "\nX-Api-Key: " + one, mixed},
	} {
		for _, path := range []string{messages, chat} {
			t.Run(path+" "+name, func(t *testing.T) {
				t.Parallel()
				model := path + name
				got := g.Do(t, http.MethodPost, path, c.headers+"\nAnthropic-Version: 2023-06-01", bodyFor(path, model, ""))
				if c.want.status == 0 {
					if got.Status != http.StatusOK || len(g.Backend.Seen(model)) != 1 {
						t.Errorf("answered %d %s", got.Status, got.Body)
					}
					return
				}
				c.want.check(t, path, got)
				if len(g.Backend.Seen(model)) != 0 {
					t.Error("the call reached the backend")
				}
			})
		}
	}
}

func TestMessagesRequireAVersionDate(t *testing.T) {
	const named = "the header anthropic-version "
	missing := refusal{400, "invalid_request_error", fault.MissingParameter, named + "is required, with a date such as 2023-06-01", "anthropic-version"}
	wrong := refusal{400, "invalid_request_error", fault.InvalidParameter, named + "must be one date such as 2023-06-01", "anthropic-version"}
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	for _, path := range []string{messages, countTokens} {
		for version, want := range map[string]refusal{
			"": missing, "latest": wrong, "2023-6-1": wrong, "2023-13-01": wrong, "2023-02-30": wrong,
			"2023-06-01T00:00:00Z": wrong, "20230601": wrong, "2023-06-01, 2024-01-01": wrong,
		} {
			t.Run(path+" "+version, func(t *testing.T) {
				t.Parallel()
				headers := "X-Api-Key: " + key
				if version != "" {
					headers += "\nAnthropic-Version: " + version
				}
				want.check(t, path, g.Do(t, http.MethodPost, path, headers, bodyFor(path, "unversioned", "")))
			})
		}
	}
	t.Cleanup(func() {
		if len(g.Backend.Seen("unversioned")) != 0 {
			t.Error("a call without a version reached the backend")
		}
	})
}

func TestTheVersionHeaderIsConfigurable(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: "version_header acme-version", Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	got := g.Do(t, http.MethodPost, messages, "X-Api-Key: "+key+"\nAnthropic-Version: 2023-06-01", bodyFor(messages, "m", ""))
	refusal{400, "invalid_request_error", fault.MissingParameter, "the header acme-version is required, with a date such as 2023-06-01", ""}.check(t, messages, got)
	got = g.Do(t, http.MethodPost, messages, "X-Api-Key: "+key+"\nAcme-Version: 2031-01-31", bodyFor(messages, "m", ""))
	if got.Status != http.StatusOK || g.Backend.Seen("m")[0].Header.Get("Acme-Version") != "2031-01-31" {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestABadBodyIs400AndNeverReachesTheBackend(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil).Secret
	const msgs = `"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		path, body string
		code       fault.Code
		param      string
	}{
		{messages, ``, fault.InvalidJSON, ""},
		{messages, `null`, fault.InvalidJSON, ""},
		{messages, `[]`, fault.InvalidJSON, ""},
		{messages, `{"model":"bad",`, fault.InvalidJSON, ""},
		{messages, `{"model":"bad","max_tokens":1,` + msgs + `}{}`, fault.InvalidJSON, ""},
		{messages, "\ufeff" + `{"model":"bad","max_tokens":1,` + msgs + `}`, fault.InvalidJSON, ""},
		{messages, "{\"model\":\"bad\xff\",\"max_tokens\":1," + msgs + "}", fault.InvalidJSON, ""},
		{messages, `{"max_tokens":1,` + msgs + `}`, fault.MissingParameter, "model"},
		{messages, `{"model":"bad","max_tokens":1}`, fault.MissingParameter, "messages"},
		{messages, `{"model":"bad",` + msgs + `}`, fault.MissingParameter, "max_tokens"},
		{messages, `{"model":7,"max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"a\u0000b","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"` + strings.Repeat("m", 257) + `","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"bad","max_tokens":"1",` + msgs + `}`, fault.InvalidParameter, "max_tokens"},
		{messages, `{"model":"bad","max_tokens":1.5,` + msgs + `}`, fault.InvalidParameter, "max_tokens"},
		{messages, `{"model":"bad","max_tokens":1,"messages":{}}`, fault.InvalidParameter, "messages"},
		{messages, `{"model":"bad","max_tokens":1,"messages":[7]}`, fault.InvalidParameter, "messages[0]"},
		{messages, `{"model":"bad","max_tokens":1,"messages":[{"content":"x"}]}`, fault.MissingParameter, "messages[0].role"},
		{messages, `{"model":"bad","max_tokens":1,"messages":[{"role":"user"}]}`, fault.MissingParameter, "messages[0].content"},
		{messages, `{"model":"bad","max_tokens":1,"stream":1,` + msgs + `}`, fault.InvalidParameter, "stream"},
		{messages, `{"model":"bad","model":"bad","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"bad","m\u006fdel":"worse","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "model"},
		{messages, `{"model":"bad","Model":"worse","max_tokens":1,` + msgs + `}`, fault.InvalidParameter, "Model"},
		{messages, `{"model":"bad","max_tokens":1,` + msgs + `,"x":` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `}`, fault.InvalidJSON, ""},
		{countTokens, `{"model":"bad"}`, fault.MissingParameter, "messages"},
		{completions, `{"model":"bad"}`, fault.MissingParameter, "prompt"},
		{completions, `{"model":"bad","prompt":7}`, fault.InvalidParameter, "prompt"},
		{completions, `{"model":"bad","prompt":["a",7]}`, fault.InvalidParameter, "prompt"},
		{completions, `{"model":"bad","prompt":[7,[7]]}`, fault.InvalidParameter, "prompt"},
		{completions, `{"model":"bad","prompt":[[7],["a"]]}`, fault.InvalidParameter, "prompt[1]"},
		{completions, `{"model":"bad","prompt":[7.5]}`, fault.InvalidParameter, "prompt[0]"},
		{messages, `{"model":"bad","max_tokens":-1,` + msgs + `}`, fault.InvalidParameter, "max_tokens"},
		{completions, `{"model":"bad","prompt":"x","n":0}`, fault.InvalidParameter, "n"},
		{completions, `{"model":"bad","prompt":"x","echo":"yes"}`, fault.InvalidParameter, "echo"},
		{completions, `{"model":"bad","prompt":"x","stream_options":[]}`, fault.InvalidParameter, "stream_options"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":1}}`, fault.InvalidParameter, "stream_options.include_usage"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":true,"include_usage":false}}`, fault.InvalidParameter, "stream_options.include_usage"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":true,"Include_Usage":false}}`, fault.InvalidParameter, "stream_options.include_usage"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":true,"include\u005fusag\u0045":false}}`, fault.InvalidParameter, "stream_options.include_usage"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":true},"stream_options":null}`, fault.InvalidParameter, "stream_options"},
		{completions, `{"model":"bad","prompt":"x","stream_options":{"include_usage":true},"Stream_Options":{}}`, fault.InvalidParameter, "stream_options"},
		{chat, `{"model":"bad"}`, fault.MissingParameter, "messages"},
		{chat, `{"model":"bad","max_completion_tokens":"many",` + msgs + `}`, fault.InvalidParameter, "max_completion_tokens"},
	} {
		t.Run(c.path+" "+c.body[:min(len(c.body), 60)], func(t *testing.T) {
			t.Parallel()
			got := g.Do(t, http.MethodPost, c.path, headersFor(c.path, key), c.body)
			if got.Status != http.StatusBadRequest {
				t.Errorf("answered %d %s", got.Status, got.Body)
			}
			if c.path == messages || c.path == countTokens {
				if !strings.HasPrefix(got.Body, `{"type":"error","error":{"type":"invalid_request_error","message":`) {
					t.Errorf("body %s", got.Body)
				}
			} else {
				param := "null"
				if c.param != "" {
					param = fmt.Sprintf("%q", c.param)
				}
				if !strings.HasPrefix(got.Body, fmt.Sprintf(`{"error":{"code":%q,`, c.code)) || !strings.HasSuffix(got.Body, `"param":`+param+`}}`) {
					t.Errorf("body %s, want %s at %s", got.Body, c.code, param)
				}
			}
			if line := g.CallLine(t, got.RequestID()); line.Text("code") != string(c.code) {
				t.Errorf("logged %v, want the code %s", line, c.code)
			}
		})
	}
	t.Cleanup(func() {
		if n := g.Backend.Total(); n != 0 {
			t.Errorf("%d bad calls reached the backend", n)
		}
	})
}

func TestAKeyIsLimitedToItsModelsAndAddresses(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	forbidden := func(message, param string) refusal {
		return refusal{403, "permission_error", fault.Forbidden, message, param}
	}
	for name, c := range map[string]struct {
		scope map[string]any
		model string
		want  refusal
	}{
		"exact name":        {map[string]any{"models": []string{"scoped-1"}}, "scoped-1", refusal{}},
		"prefix":            {map[string]any{"models": []string{"other", "scoped-*"}}, "scoped-2", refusal{}},
		"another model":     {map[string]any{"models": []string{"scoped-1"}}, "scoped-10", forbidden(`this API key may not use the model "scoped-10"`, "model")},
		"from here":         {map[string]any{"ip_ranges": []string{"127.0.0.0/8"}}, "scoped-3", refusal{}},
		"from another host": {map[string]any{"ip_ranges": []string{"192.0.2.1", "2001:db8::/32"}}, "scoped-4", forbidden("this API key may not be used from your address", "")},
	} {
		t.Run(name, func(t *testing.T) {
			key := g.NewKey(t, c.scope).Secret
			for _, path := range []string{messages, completions} {
				got := post(t, g, path, key, c.model, "")
				if c.want.status == 0 {
					if got.Status != http.StatusOK {
						t.Errorf("%s: %d %s", path, got.Status, got.Body)
					}
					continue
				}
				c.want.check(t, path, got)
				if len(g.Backend.Seen(c.model)) != 0 {
					t.Error("the call reached the backend")
				}
			}
		})
	}
}

func TestRevokingAndDisablingApplyToTheNextRequest(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	status := func() int { return post(t, g, chat, key.Secret, "m", "").Status }
	for _, step := range []struct {
		path string
		want int
	}{
		{"/modelgate/users/" + key.UserID + "/enable", 200},
		{"/modelgate/users/" + key.UserID + "/disable", 401},
		{"/modelgate/users/" + key.UserID + "/enable", 200},
		{"/modelgate/keys/" + key.ID + "/rotate", 401},
	} {
		g.MustAdmin(t, http.MethodPost, step.path, map[string]any{}, nil)
		if got := status(); got != step.want {
			t.Errorf("after %s: answered %d, want %d", step.path, got, step.want)
		}
	}
}
