package console_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/console"
	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// holder is a user with a role and a second factor: in a browser, and with an access token.
type holder struct {
	account
	*browser
	id string
}

// newHolder makes a user with a role; "none": without one.
func newHolder(t testing.TB, g *gatetest.Gate, role string) holder {
	t.Helper()
	h := newPerson(t, g, role)
	h.enrols(t)
	return h
}

// newPerson is newHolder without a second factor.
func newPerson(t testing.TB, g *gatetest.Gate, role string) holder {
	t.Helper()
	b := newBrowser(g)
	name := b.registers(t)
	var self struct{ ID string }
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": role}, &self)
	b.does(t, "POST", "/api/user/login", credentials(name, password)) // a new role ends the sessions
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/token", nil, &minted)
	return holder{account{g, name, "Authorization: Bearer " + minted.Token}, b, self.ID}
}

// verified proves the second factor with both credentials, and returns the account with the token.
func (h holder) verified(t testing.TB) account {
	t.Helper()
	h.verifies(t)
	post[json.RawMessage](t, h.account, "/api/verify", `{"method":"2fa","code":`+h.code(t)+`}`)
	return h.account
}

// administers sends a request of the holder's browser that must succeed.
func (h holder) administers(t testing.TB, method, path, body string) json.RawMessage {
	t.Helper()
	return h.browser.does(t, method, "/api/admin/"+path, body)
}

// isRefused sends a request of the holder's browser that must be refused.
func (h holder) isRefused(t testing.TB, method, path, body string, status int, code string) {
	t.Helper()
	h.browser.refused(t, method, "/api/admin/"+path, body, status, code)
}

// adminRows returns the routes of the administration.
func adminRows() []console.Row {
	return slices.DeleteFunc(console.Rows(), func(row console.Row) bool { return row.Roles == nil })
}

// TestEveryAdministrationRouteChecksRoleFactorAndStepUp sends every route with every kind of caller. No
// request names an account, so one that passes the checks changes nothing.
func TestEveryAdministrationRouteChecksRoleFactorAndStepUp(t *testing.T) {
	g := start(t)
	key := g.NewKey(t, nil)
	rows := adminRows()
	if len(rows) < 45 {
		t.Fatalf("%d routes", len(rows))
	}
	request := func(row console.Row) (path, body string) {
		path = pathOf(row)
		switch row.Method {
		case "POST":
			body = `{"reason":"test"}`
		case "DELETE":
			path += "?reason=test"
		}
		return path, body
	}
	type caller struct{ what, header string }
	callers := func(what string, h holder) []caller {
		return []caller{{what + " with a session", h.cookies()}, {what + " with a token", h.auth + "\n"}}
	}
	walk := func(c caller, want func(row console.Row) (status int, code string)) {
		t.Helper()
		for _, row := range rows {
			path, body := request(row)
			answer := g.Do(t, row.Method, path, c.header+"Content-Type: application/json", body)
			var e envelope
			_ = json.Unmarshal([]byte(answer.Body), &e) // one answer is no JSON
			status, code := want(row)
			if status == 0 { // allowed: anything but a refusal of the caller
				if answer.Status == 401 || answer.Status == 403 || answer.Status >= 500 {
					t.Errorf("%s: %s %s is refused with %d %s", c.what, row.Method, row.Path, answer.Status, answer.Body)
				}
			} else if answer.Status != status || e.Code != code {
				t.Errorf("%s: %s %s is answered %d %s, want %d %s", c.what, row.Method, row.Path, answer.Status, answer.Body, status, code)
			}
		}
	}
	always := func(status int, code string) func(console.Row) (int, string) {
		return func(console.Row) (int, string) { return status, code }
	}
	walk(caller{"anonymous", ""}, always(401, "NOT_LOGGED_IN"))
	walk(caller{"an API key", "Authorization: Bearer " + key.Secret + "\n"}, always(401, "NOT_LOGGED_IN"))
	for _, role := range []string{"none", "admin", "support", "finance"} {
		h := newPerson(t, g, role)
		for _, c := range callers(role+" without a factor", h) {
			walk(c, always(403, "FORBIDDEN"))
		}
		h.enrols(t)
		g.Wait(time.Hour)
		for _, verified := range []bool{false, true} {
			what := role + " without a step-up"
			if verified {
				what = role + " with a step-up"
				h.verified(t)
			}
			for _, c := range callers(what, h) {
				walk(c, func(row console.Row) (int, string) {
					switch {
					case !slices.Contains(row.Roles, role):
						return 403, "FORBIDDEN"
					case row.Asks != "" && !verified:
						return 403, "VERIFICATION_REQUIRED"
					}
					return 0, ""
				})
			}
		}
		if role == "none" {
			continue
		}
		// Every change needs a reason, and says so before anything else is done.
		for _, row := range rows {
			if row.Method == "GET" || !slices.Contains(row.Roles, role) {
				continue
			}
			for reason, code := range map[string]string{"": "MISSING_PARAMETER", "  ": "MISSING_PARAMETER", "a\u007fb": "INVALID_PARAMETER", strings.Repeat("r", 501): "INVALID_PARAMETER"} {
				path, body := pathOf(row), fmt.Sprintf(`{"reason":"%s"}`, reason)
				if row.Method == "DELETE" {
					path, body = path+"?reason="+url.QueryEscape(reason), ""
				}
				if answer, e := h.account.ask(t, row.Method, path, body); answer.Status != 400 || e.Code != code || !strings.Contains(answer.Body, `"param":"reason"`) {
					t.Errorf("%s %s with the reason %.10q: answered %d %s", row.Method, path, reason, answer.Status, answer.Body)
				}
			}
		}
	}
	g.Verify(t)
}

func TestNobodyGainsRightsInTheAdministration(t *testing.T) {
	g := start(t)
	admin, other, support, finance := newHolder(t, g, "admin"), newHolder(t, g, "admin"), newHolder(t, g, "support"), newHolder(t, g, "finance")
	for _, h := range []holder{admin, other, support, finance} {
		h.verifies(t)
	}
	const because = `{"reason":"test"}`
	role := func(role string) string { return fmt.Sprintf(`{"role":%q,"reason":"test"}`, role) }

	// Users cannot act on their own account, by id, by name in any case, or by the body.
	for _, user := range []string{admin.id, admin.account.name, strings.ToUpper(admin.account.name)} {
		admin.isRefused(t, "POST", "users/"+user+"/role", role("none"), 403, "FORBIDDEN")
		admin.isRefused(t, "POST", "wallets/"+user+"/credit", `{"amount":"1.00","reason":"test"}`, 403, "FORBIDDEN")
		admin.isRefused(t, "POST", "subscriptions", fmt.Sprintf(`{"user":%q,"plan_id":1,"reason":"test"}`, user), 403, "FORBIDDEN")
		admin.isRefused(t, "DELETE", "users/"+user+"/factors?reason=test", "", 403, "FORBIDDEN")
	}
	own := g.NewKey(t, map[string]any{"user": admin.account.name})
	admin.isRefused(t, "DELETE", "keys/"+own.ID+"/limits?reason=test", "", 403, "FORBIDDEN")

	// Only an administrator can act on the account of a user with a role.
	for _, h := range []holder{admin, finance} {
		support.isRefused(t, "POST", "users/"+h.id+"/sign-out", because, 403, "FORBIDDEN")
		support.isRefused(t, "DELETE", "users/"+h.id+"/factors?reason=test", "", 403, "FORBIDDEN")
		support.isRefused(t, "POST", "users/"+h.account.name+"/unblock", because, 403, "FORBIDDEN")
	}
	finance.isRefused(t, "POST", "subscriptions", fmt.Sprintf(`{"user":%q,"plan_id":1,"reason":"test"}`, finance.id), 403, "FORBIDDEN")
	finance.isRefused(t, "POST", "users/"+finance.id+"/role", role("admin"), 403, "FORBIDDEN")
	support.isRefused(t, "POST", "users/"+newAccount(t, g).name+"/disable", because, 403, "FORBIDDEN")
	for path, body := range map[string]string{"users/" + other.id + "/role": `{"role":"root","reason":"test"}`, "users/" + support.id + "/role": `{"role":"","reason":"test"}`} {
		admin.isRefused(t, "POST", path, body, 400, "INVALID_PARAMETER")
	}

	// A role ends with the next request, and the last administrator keeps the role.
	admin.administers(t, "POST", "users/"+other.id+"/role", role("none"))
	other.isRefused(t, "POST", "users/"+admin.id+"/role", role("none"), 403, "FORBIDDEN")
	other.isRefused(t, "GET", "users", "", 403, "FORBIDDEN")
	if answer, _ := other.account.ask(t, "GET", "/api/admin/users", ""); answer.Status != 403 {
		t.Errorf("the token of a former administrator is answered %d %s", answer.Status, answer.Body)
	}
	admin.administers(t, "POST", "users/"+support.id+"/disable", because)
	support.isRefused(t, "GET", "users", "", 401, "NOT_LOGGED_IN")

	// Losing the second factor stops the use of the role.
	g.MustAdmin(t, http.MethodDelete, "/modelgate/users/"+finance.id+"/factors", nil, nil)
	finance.isRefused(t, "GET", "users", "", 403, "FORBIDDEN")
	var self struct {
		Role string
		Data struct{}
	}
	into(t, finance.browser.does(t, "GET", "/api/user/self", ""), &self)
	if self.Role != "finance" {
		t.Errorf("the account says %+v", self)
	}
	// A body above the limit is refused before it is read.
	wire := g.Dial(t)
	wire.Send(t, fmt.Sprintf("POST /api/admin/users/%s/disable HTTP/1.1\nHost: gate\n%sContent-Type: application/json\nContent-Length: %d\n\n", other.id, admin.cookies(), 64<<10+1))
	refused(t, "a large body", wire.Receive(t, "POST"), 413, "PAYLOAD_TOO_LARGE")
	admin.isRefused(t, "POST", "users/"+other.id+"/disable", `{"reason":"test","until":1}`, 400, "INVALID_PARAMETER")
	admin.isRefused(t, "POST", "users/"+other.id+"/disable", `{"reason":7}`, 400, "INVALID_PARAMETER")
	admin.isRefused(t, "POST", "users/"+other.id+"/disable", `{"reason":"a","reason":"b"}`, 400, "INVALID_PARAMETER")
}

// event is an event of the audit as the administration shows it.
type adminEvent struct {
	Actor, Action, Detail, Before, After, Reason, Address string
	ActorName                                             string `json:"actor_name"`
	RequestID                                             string `json:"request_id"`
}

func TestEveryActionOfAnAdministratorIsAudited(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing + generating, Site: doors})
	admin, user := newHolder(t, g, "admin"), newAccount(t, g)
	admin.verifies(t)
	g.Credit(t, user.name, "50.00")
	key := g.NewKey(t, map[string]any{"user": user.name})
	task := user.composes(t, film("stays")).ID
	user.until(t, task, "in_progress")
	granted := func() string {
		var sold struct {
			ID int64 `json:"subscription_id"`
		}
		into(t, admin.administers(t, "POST", "subscriptions", `{"user":"`+user.name+`","plan_id":1,"reason":"why not"}`), &sold)
		return fmt.Sprint(sold.ID)
	}
	for i, c := range []struct {
		method, path, body    string
		action, before, after string
	}{
		{"POST", "wallets/" + user.name + "/credit", `"amount":"1.50"`, "wallet.credit", "50.00", "51.50"},
		{"POST", "wallets/" + user.name + "/debit", `"amount":"0.50"`, "wallet.debit", "51.50", "51.00"},
		{"POST", "subscriptions/" + granted() + "/cancel", "", "subscription.cancel", "", ""},
		{"POST", "users/" + user.name + "/limits", `"streams":2`, "user.limit", "none", "streams 2"},
		{"DELETE", "users/" + user.name + "/limits", "", "user.limit", "streams 2", "none"},
		{"POST", "keys/" + key.ID + "/limits", `"streams":3`, "key.limit", "none", "streams 3"},
		{"DELETE", "keys/" + key.ID + "/limits", "", "key.limit", "streams 3", "none"},
		{"POST", "keys/" + key.ID + "/revoke", "", "key.revoke", "", ""},
		{"POST", "tasks/" + task + "/retry", "", "task.retry", "", ""},
		{"POST", "tasks/" + task + "/cancel", "", "task.cancel", "", ""},
		{"POST", "users/" + user.name + "/role", `"role":"support"`, "user.role", "none", "support"},
		{"POST", "users/" + user.name + "/role", `"role":"none"`, "user.role", "support", "none"},
		{"POST", "users/" + user.name + "/reset-password", "", "password.reset_code", "", ""},
		{"POST", "users/" + user.name + "/unblock", "", "user.unblock", "", ""},
		{"POST", "users/" + user.name + "/sign-out", "", "user.sign_out", "", ""},
		{"DELETE", "users/" + user.name + "/factors", "", "user.reset_2fa", "", ""},
		{"POST", "users/" + user.name + "/disable", "", "user.disable", "", ""},
		{"POST", "users/" + user.name + "/enable", "", "user.enable", "", ""},
	} {
		reason := fmt.Sprintf("case %d, 原因 <b>", i)
		path, body := "/api/admin/"+c.path, fmt.Sprintf(`{"reason":%q`, reason)
		if c.body != "" {
			body += "," + c.body
		}
		body += "}"
		if c.method == "DELETE" {
			path, body = path+"?reason="+url.QueryEscape(reason), ""
		}
		answer, e := admin.browser.ask(t, c.method, path, body)
		if !e.Success {
			t.Errorf("%s %s: answered %d %s", c.method, c.path, answer.Status, answer.Body)
			continue
		}
		var events struct{ Items []adminEvent }
		into(t, admin.administers(t, "GET", "users/"+user.name+"/activity?limit=1", ""), &events)
		want := adminEvent{admin.id, c.action, "", c.before, c.after, reason, "127.0.0.1", admin.account.name, answer.RequestID()}
		if len(events.Items) == 1 {
			want.Detail = events.Items[0].Detail
		}
		if len(events.Items) != 1 || events.Items[0] != want {
			t.Errorf("%s %s is recorded as %+v, want %+v", c.method, c.path, events.Items, want)
		}
		g.WaitLine(t, func(l gatetest.Line) bool {
			return l.Text("logger") == "modelgate.audit" && l.Text("msg") == c.action && l.Text("actor") == admin.id && l.Text("reason") == reason &&
				l.Text("before") == c.before && l.Text("after") == c.after && l.Text("address") == "127.0.0.1" && l.Text("request_id") == answer.RequestID()
		})
	}
	// The user learns what was done, and not by whom or why. The role has ended their token.
	refused(t, "the token before the role", g.Do(t, "GET", "/api/user/self", user.auth, ""), 401, "NOT_LOGGED_IN")
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+user.name+"/token", nil, &minted)
	user.auth = "Authorization: Bearer " + minted.Token
	for _, own := range get[page[struct{ Actor, Address string }]](t, user, "/api/user/activity/?page_size=100").Items {
		if own.Actor == "operator" && own.Address != "" {
			t.Errorf("the user sees the address of an administrator: %+v", own)
		}
	}
	shown := get[json.RawMessage](t, user, "/api/user/activity/?page_size=100")
	for _, hidden := range []string{admin.id, admin.account.name, "case 3,"} {
		if strings.Contains(string(shown), hidden) {
			t.Errorf("the user's activity shows %q: %s", hidden, shown)
		}
	}
	// Actions on no account.
	admin.administers(t, "POST", "verify", `{"reason":"monthly check"}`)
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("msg") == "store.verify" && l.Text("reason") == "monthly check" && l.Text("actor") == admin.id
	})
	admin.administers(t, "POST", "backends/secret-works/drain", `{"reason":"broken"}`)
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("msg") == "backend.drain" && l.Text("reason") == "broken" && l.Text("actor") == admin.id
	})

	// The pages of the audit have every event once.
	all, after := []adminEvent(nil), ""
	for {
		var page struct {
			Items []adminEvent
			Next  string
		}
		into(t, admin.administers(t, "GET", "users/"+user.name+"/activity?limit=3&after="+after, ""), &page)
		if all, after = append(all, page.Items...), page.Next; after == "" {
			break
		}
	}
	var whole struct{ Items []adminEvent }
	into(t, admin.administers(t, "GET", "users/"+user.name+"/activity?limit=100", ""), &whole)
	if len(all) < 20 || !slices.Equal(all, whole.Items) {
		t.Errorf("in pages of 3: %d events, at once %d", len(all), len(whole.Items))
	}
	admin.isRefused(t, "GET", "users/"+user.name+"/activity?after=x", "", 400, "INVALID_PARAMETER")
	g.Verify(t)
}

func TestListsAndStreamsOfTheAdministration(t *testing.T) {
	g := start(t)
	finance, support := newHolder(t, g, "finance"), newHolder(t, g, "support")
	for _, name := range []string{"zoe-b", "Zoe-a", "zoe", "zo", "y"} {
		g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": name}, nil)
	}
	find := func(query string) (names []string, next string) {
		t.Helper()
		var page struct {
			Items []struct{ ID, Name string }
			Next  string
		}
		into(t, finance.administers(t, "GET", "users?"+query, ""), &page)
		for _, user := range page.Items {
			names = append(names, user.Name)
			if user.Name == "zo" {
				next = user.ID
			}
		}
		if page.Next != "" {
			next = page.Next
		}
		return names, next
	}
	for query, want := range map[string]string{"q=zoe": "[zoe Zoe-a zoe-b]", "q=ZOE-": "[Zoe-a zoe-b]", "q=zoe%20x": "[]", "q=nobody": "[]", "q=" + support.id: "[" + support.account.name + "]"} {
		if names, _ := find(query); fmt.Sprint(names) != want {
			t.Errorf("%s finds %v, want %s", query, names, want)
		}
	}
	var all []string
	for next := ""; ; {
		names, after := find("limit=2&after=" + next)
		all = append(all, names...)
		if next = after; len(names) < 2 {
			break
		}
	}
	if whole, _ := find("limit=100"); len(all) != 7 || !slices.Equal(all, whole) {
		t.Errorf("in pages of 2: %v, at once %v", all, whole)
	}
	_, zo := find("q=zo&limit=1")
	if names, _ := find("q=zoe&after=" + zo); fmt.Sprint(names) != "[zoe Zoe-a zoe-b]" {
		t.Errorf("after a user before the range: %v", names)
	}
	finance.isRefused(t, "GET", "users?after=usr_0", "", 400, "INVALID_PARAMETER")

	g.Credit(t, "zoe", "5.00")
	answer := g.Do(t, "GET", "/api/admin/ledger", finance.cookies(), "")
	rows, err := csv.NewReader(strings.NewReader(answer.Body)).ReadAll()
	if err != nil || len(rows) != 3 || answer.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
		t.Errorf("the ledger is answered %d %v %q: %v", answer.Status, answer.Header, answer.Body, err)
	}
	if last := support.administers(t, "GET", "verify", ""); string(last) != "null" {
		t.Errorf("before the first verification: %s", last)
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/verify", nil, nil)
	var last struct {
		Time  int64
		Took  int64 `json:"took_ns"`
		Users int64
	}
	into(t, support.administers(t, "GET", "verify", ""), &last)
	if last.Took <= 0 || last.Time != g.Now().Unix() && last.Time != g.Now().Unix()-1 || last.Users != 1 {
		t.Errorf("after it: %+v", last)
	}
}

func TestTheAdministrationCanBeSwitchedOff(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app, Site: strings.Replace(site, "modelgate_console {", "modelgate_console {\nadmin off", 1)})
	admin := newHolder(t, g, "admin")
	admin.verifies(t)
	for _, row := range adminRows() {
		admin.browser.refused(t, row.Method, pathOf(row), "{}", 404, "NOT_FOUND")
	}
	admin.browser.does(t, "GET", "/api/user/self", "")
}
