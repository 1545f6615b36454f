package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/handlers/console"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// pathOf returns a path of a route, with values for its parameters.
func pathOf(row console.Row) string {
	return strings.NewReplacer("{provider}", "demo", "{trade_no}", strings.Repeat("0", 32), "{task_id}", "task_"+strings.Repeat("A", 26), "{id}", "key_0", "{request_id}", "req_"+strings.Repeat("A", 26),
		"{user}", "nobody", "{key}", "key_0", "{request}", "req_"+strings.Repeat("A", 26), "{order}", strings.Repeat("0", 32), "{task}", "task_"+strings.Repeat("A", 26), "{backend}", "works", "{transfer}", strings.Repeat("0", 32)).Replace(row.Path)
}

func TestEveryRouteRefusesCrossOriginRequests(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	for _, row := range console.Rows() {
		for _, method := range []string{"POST", "PUT", "DELETE"} {
			for _, from := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: https://elsewhere.example", "Origin: null"} {
				got := g.Do(t, method, pathOf(row), a.auth+"\nContent-Type: application/json\n"+from, `{}`)
				refused(t, method+" "+row.Path+", "+from, got, 403, "CROSS_ORIGIN")
			}
			for _, from := range []string{"Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Origin: http://" + g.Address, ""} {
				if got := g.Do(t, method, pathOf(row), a.auth+"\nContent-Type: application/json\n"+from, `{}`); strings.Contains(got.Body, "CROSS_ORIGIN") {
					t.Errorf("%s %s, %s: refused as another site's: %s", method, row.Path, from, got.Body)
				}
			}
		}
	}
}

func TestUserRoutesRequireAnAccessToken(t *testing.T) {
	g := start(t)
	a, b := newAccount(t, g), newAccount(t, g)
	key := g.NewKey(t, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+b.name+"/disable", nil, nil)
	token := strings.TrimPrefix(a.auth, "Authorization: Bearer ")
	first := ""
	for _, row := range console.Rows() {
		if !row.User {
			continue
		}
		for name, header := range map[string]string{
			"nothing": "", "an API key": "Authorization: Bearer " + key.Secret, "an API key in its own header": "X-Api-Key: " + key.Secret,
			"a token in the header of keys": "X-Api-Key: " + token, "Basic": "Authorization: Basic " + token,
			"a cookie": "Cookie: session=" + token, "junk": "Authorization: Bearer mgat_junk", "a disabled user's": b.auth,
		} {
			got := g.Do(t, row.Method, pathOf(row)+"?access_token="+token, header, "")
			refused(t, row.Method+" "+row.Path+" with "+name, got, 401, "NOT_LOGGED_IN")
			if first == "" {
				first = got.Body
			}
			if got.Body != first {
				t.Errorf("%s with %s: %s, want the same as all others: %s", row.Path, name, got.Body, first)
			}
		}
	}
	if got := g.Do(t, "GET", "/v1/models", a.auth, ""); got.Status != 401 {
		t.Errorf("an access token on /v1 is answered %d", got.Status)
	}
	if got, _ := a.ask(t, "GET", "/api/user/self", ""); got.Status != 200 {
		t.Errorf("the token is answered %d", got.Status)
	}
}

func TestTheBodyOfAnUnauthenticatedRequestIsNotRead(t *testing.T) {
	g := start(t)
	wire := g.Dial(t)
	wire.Send(t, "POST /api/subscription/wallet/pay HTTP/1.1\nHost: gate\nContent-Type: application/json\nContent-Length: 1000\n\n")
	refused(t, "a body that never comes", wire.Receive(t, "POST"), 401, "NOT_LOGGED_IN")
}

func TestMethodNotAllowedListsTheAllowedMethods(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	allowed := make(map[string][]string)
	for _, row := range console.Rows() {
		path := pathOf(row)
		allowed[path] = append(allowed[path], row.Method)
		if row.Method == "GET" {
			allowed[path] = append(allowed[path], "HEAD")
		}
	}
	for path, methods := range allowed {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"} {
			got := g.Do(t, method, path, a.auth+"\nContent-Type: application/json", "")
			if strings.Contains(strings.Join(methods, " "), method) {
				if got.Status == http.StatusMethodNotAllowed {
					t.Errorf("%s %s is refused", method, path)
				}
				continue
			}
			refused(t, method+" "+path, got, 405, "METHOD_NOT_ALLOWED")
			if want := strings.Join(methods, ", "); got.Header.Get("Allow") != want {
				t.Errorf("%s %s allows %q, want %q", method, path, got.Header.Get("Allow"), want)
			}
		}
	}
}

func TestUnknownAPIPathsReturn404AndOthersPass(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app, Site: site + `
		handle /api/theirs {
			respond "theirs"
		}
		handle /about {
			respond "about"
		}
	`})
	a := newAccount(t, g)
	for _, path := range []string{
		"/api", "/api/", "/api/user", "/api/user/", "/api/unknown", "/api/user/self/", "/api/user//self", "/API/user/self", "/api/user/Self", "/api/user/%73elf",
		"/api/user/topup/0%2F0", "/api/user/demo/page", "/api/user/ledger//", "/x/../api/user/self/", "/api/user/self%00",
	} {
		refused(t, path, g.Do(t, "GET", path, a.auth, ""), 404, "NOT_FOUND")
	}
	for path, want := range map[string]string{"/api/theirs": "theirs", "/about": "about"} {
		if got := g.Do(t, "GET", path, "", ""); got.Body != want {
			t.Errorf("%s: %d %s", path, got.Status, got.Body)
		}
	}
}

func TestInvalidBodiesAreRefused(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	const good = `{"plan_id":2}`
	for name, c := range map[string]struct {
		header, body string
		status       int
		code         string
	}{
		"no type":              {"", good, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"a form":               {"Content-Type: application/x-www-form-urlencoded", "plan_id=2", 415, "UNSUPPORTED_MEDIA_TYPE"},
		"plain text":           {"Content-Type: text/plain", good, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"two types":            {"Content-Type: application/json\nContent-Type: text/plain", good, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"a longer type":        {"Content-Type: application/jsonp", good, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"gzip":                 {"Content-Type: application/json\nContent-Encoding: gzip", good, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"too large":            {"Content-Type: application/json", `{"plan_id":2` + strings.Repeat(" ", 64<<10) + `}`, 413, "PAYLOAD_TOO_LARGE"},
		"empty":                {"Content-Type: application/json", "", 400, "INVALID_JSON"},
		"no JSON":              {"Content-Type: application/json", "plan", 400, "INVALID_JSON"},
		"a list":               {"Content-Type: application/json", "[2]", 400, "INVALID_JSON"},
		"two values":           {"Content-Type: application/json", good + good, 400, "INVALID_JSON"},
		"a byte order mark":    {"Content-Type: application/json", "\ufeff" + good, 400, "INVALID_JSON"},
		"no UTF-8":             {"Content-Type: application/json", "{\"plan_id\":2,\"a\":\"\xff\"}", 400, "INVALID_JSON"},
		"too deep":             {"Content-Type: application/json", `{"a":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`, 400, "INVALID_JSON"},
		"a name twice":         {"Content-Type: application/json", `{"plan_id":2,"plan_id":1}`, 400, "INVALID_PARAMETER"},
		"a name twice, hidden": {"Content-Type: application/json", `{"plan_id":2,"plan\u005fid":1}`, 400, "INVALID_PARAMETER"},
		"a name in other case": {"Content-Type: application/json", `{"Plan_ID":2}`, 400, "INVALID_PARAMETER"},
		"a name unknown":       {"Content-Type: application/json", `{"plan_id":2,"idempotency-key":"a"}`, 400, "INVALID_PARAMETER"},
		"text for a number":    {"Content-Type: application/json", `{"plan_id":"2"}`, 400, "INVALID_PARAMETER"},
		"a fraction":           {"Content-Type: application/json", `{"plan_id":2.0}`, 400, "INVALID_PARAMETER"},
		"a great number":       {"Content-Type: application/json", `{"plan_id":9223372036854775808}`, 400, "INVALID_PARAMETER"},
		"zero":                 {"Content-Type: application/json", `{"plan_id":0}`, 400, "INVALID_PARAMETER"},
		"less than zero":       {"Content-Type: application/json", `{"plan_id":-2}`, 400, "INVALID_PARAMETER"},
		"null":                 {"Content-Type: application/json", `{"plan_id":null}`, 400, "MISSING_PARAMETER"},
		"nothing in it":        {"Content-Type: application/json", `{}`, 400, "MISSING_PARAMETER"},
	} {
		got := g.Do(t, "POST", "/api/subscription/free/pay", a.auth+"\n"+c.header, c.body)
		refused(t, name, got, c.status, c.code)
	}

	for name, rest := range map[string]string{
		"announced too large, and never sent": "Content-Length: 1000000\n\n",
		"too large, and not announced":        "Transfer-Encoding: chunked\n\n10001\n" + strings.Repeat(" ", 0x10001) + "\n0\n\n",
	} {
		wire := g.Dial(t)
		wire.Send(t, "POST /api/subscription/free/pay HTTP/1.1\nHost: gate\n"+a.auth+"\nContent-Type: application/json\n"+rest)
		refused(t, name, wire.Receive(t, "POST"), 413, "PAYLOAD_TOO_LARGE")
	}

	if got := g.Do(t, "POST", "/api/subscription/free/pay", a.auth+"\nContent-Type: application/json; charset=utf-8", good); got.Status != 200 {
		t.Errorf("the good body is answered %d %s", got.Status, got.Body)
	}
}

func TestAnswersHaveARequestIDAndAreNotCached(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	for _, path := range []string{"/api/user/self", "/api/subscription/plans", "/api/user/ledger?format=csv"} {
		got := g.Do(t, "GET", path, a.auth, "")
		if got.Status != 200 || !strings.HasPrefix(got.RequestID(), "req_") || got.Header.Get("Cache-Control") != "no-store" ||
			got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", path, got.Status, got.Header)
		}
		head := g.Do(t, "HEAD", path, a.auth, "")
		if head.Status != 200 || head.Body != "" || head.Header.Get("Content-Type") != got.Header.Get("Content-Type") {
			t.Errorf("HEAD %s: %d %q %v", path, head.Status, head.Body, head.Header)
		}
	}
}

func TestInvalidQueriesAreRefused(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	for _, path := range []string{
		"/api/user/ledger?p=0", "/api/user/ledger?p=-1", "/api/user/ledger?p=x", "/api/user/ledger?p=1.0", "/api/user/ledger?p=99999999999999999999",
		"/api/user/ledger?page_size=0", "/api/user/ledger?page_size=101", "/api/user/ledger?p=1&p=2", "/api/user/ledger?format=xml", "/api/user/ledger?a=%zz",
		"/api/user/ledger?account=quota", "/api/user/ledger?account=quota/x", "/api/user/ledger?account=quota/a/b", "/api/user/ledger?account=Receivable",
		"/api/user/ledger?account=../usr_x/wallet", "/api/log/self?start=yesterday", "/api/log/self?start=-1", "/api/log/self?start=20&end=20",
		"/api/log/self?p=100000&page_size=100", "/api/data/self?group=user", "/api/data/self?tz=Asia/Shanghai", "/api/data/self?start=0", "/api/data/self?start=253402300799",
		"/api/log/self?model=" + strings.Repeat("m", 257), "/api/subscription/self?p=0", "/api/subscription/plans?p=0", "/api/user/topup/self?p=0",
	} {
		got, e := a.ask(t, "GET", path, "")
		if got.Status != 400 || e.Code != "INVALID_PARAMETER" {
			t.Errorf("%s: answered %d %s", path, got.Status, got.Body)
		}
	}
}

func TestParametersThatAPathDoesNotKnowAreRefusedAndOthersRead(t *testing.T) {
	g := start(t)
	a := newHolder(t, g, "admin").verified(t)
	for _, row := range console.Rows() {
		if !row.User || row.Method != "GET" && row.Method != "DELETE" {
			continue
		}
		path, ask := pathOf(row), func(query string) (gatetest.Answer, envelope) { return a.ask(t, row.Method, pathOf(row)+query, "") }
		allowed := "allowed: none"
		if len(row.Params) > 0 {
			allowed = "allowed: " + strings.Join(row.Params, ", ")
		}
		for _, query := range []string{"page=2", "Page_Size=1", "p=1&%25d%00=1", "=", "a[]=1"} {
			got, e := ask("?" + query)
			if got.Status != 400 || e.Code != "INVALID_PARAMETER" || !strings.Contains(e.Message, "is not a parameter") || !strings.HasSuffix(e.Message, allowed) {
				t.Errorf("%s?%s: answered %d %s, want %q", path, query, got.Status, got.Body, allowed)
			}
			if head := g.Do(t, "HEAD", path+"?"+query, a.auth, ""); row.Method == "GET" && head.Status != 400 {
				t.Errorf("HEAD %s?%s: answered %d", path, query, head.Status)
			}
		}
		for _, name := range row.Params { // a parameter that is given twice is refused
			if name == "group" && row.Roles != nil {
				continue // takes several
			}
			got, e := ask("?" + name + "=1&" + name + "=1")
			if got.Status != 400 || !strings.Contains(e.Message, "`"+name+"` is given twice") {
				t.Errorf("%s: %s is not read: %d %s", path, name, got.Status, got.Body)
			}
		}
	}
}

func TestARateLimitReturnsRetryAfter(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app, Site: `
		modelgate_console {
			reads_per_minute    3
			writes_per_minute   2
			pages_per_minute    2
			webhooks_per_minute 2
			logins_per_minute   2
		}
	`})
	one, other := newAccount(t, g), newAccount(t, g)
	ask := func(a account, method, path string) gatetest.Answer {
		return g.Do(t, method, path, a.auth+"\nContent-Type: application/json", `{}`)
	}
	for what, c := range map[string]struct {
		method, path string
		allowed      int
	}{
		"reads":    {"GET", "/api/user/self", 3},
		"writes":   {"POST", "/api/subscription/free/pay", 2},
		"pages":    {"GET", "/api/user/demo/page/" + strings.Repeat("0", 32), 2},
		"webhooks": {"POST", "/api/user/demo/webhook", 2},
		"log-ins":  {"POST", "/api/user/login", 2},
	} {
		for i := range c.allowed {
			if got := ask(one, c.method, c.path); got.Status == http.StatusTooManyRequests {
				t.Errorf("%s: refused after %d", what, i)
			}
		}
		got := ask(one, c.method, c.path)
		refused(t, what, got, 429, "RATE_LIMITED")
		if wait := got.Header.Get("Retry-After"); wait == "" || wait == "0" || len(wait) > 2 {
			t.Errorf("%s: Retry-After %q", what, wait)
		}
		byAddress := what == "pages" || what == "webhooks" || what == "log-ins"
		if got := ask(other, c.method, c.path); got.Status == http.StatusTooManyRequests != byAddress {
			t.Errorf("%s of another user: %d", what, got.Status)
		}
	}
}

func TestRatesOfTheDirective(t *testing.T) {
	t.Parallel()
	for block, want := range map[string]string{
		``:                          `{"handler":"modelgate_console"}`,
		"{\n}":                      `{"handler":"modelgate_console"}`,
		"{\nreads_per_minute 7\n}":  `{"handler":"modelgate_console","reads_per_minute":7}`,
		"{\nwrites_per_minute 0\n}": ``, "{\nwrites_per_minute many\n}": ``, "{\nwrites_per_minute 1 2\n}": ``, "{\nwrites_per_minute\n}": ``,
		"{\nwrites_per_minute 1\nwrites_per_minute 1\n}": ``, "{\nother 1\n}": ``, "often": ``, "{\npages_per_minute 1000001\n}": ``,
		"{\nlogins_per_minute 7\n}": `{"handler":"modelgate_console","logins_per_minute":7}`, "{\nlogins_per_minute 0\n}": ``,
	} {
		adapted, err := gatetest.Adapt(":80 {\n\tmodelgate_console " + block + "\n}\n")
		switch {
		case want == "":
			if err == nil || !strings.Contains(err.Error(), "Caddyfile:") {
				t.Errorf("%q: got %v, want an error with file and line", block, err)
			}
		case err != nil || !strings.Contains(string(adapted), want):
			t.Errorf("%q became %s (%v)", block, adapted, err)
		}
	}
}

func TestAFailedStoreIsA503(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	g.FailStore(t)
	for _, path := range []string{"/api/user/self", "/api/user/ledger"} {
		got, e := a.ask(t, "GET", path, "")
		if got.Status != 503 || e.Code != "STORE_UNAVAILABLE" || got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: %d %s", path, got.Status, got.Body)
		}
	}
	got := g.Do(t, "POST", "/api/user/demo/webhook", "Content-Type: application/json", `{}`)
	if got.Status != 503 {
		t.Errorf("a webhook that cannot be applied is answered %d: it would not be sent again", got.Status)
	}
}
