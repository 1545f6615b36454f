package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// postForms returns the fields of the forms of a page that change something, without the keys that
// the page has drawn.
func postForms(t testing.TB, page gatetest.Answer) (forms []url.Values) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page.Body))
	if err != nil {
		t.Fatal(err)
	}
	for node := range root.Descendants() {
		if node.Data != "form" || attribute(node, "method") != "post" {
			continue
		}
		fields := fieldsOf(node)
		if fields.Has("return") { // the choice of the language or the theme, which leads back to the page
			continue
		}
		if key := fields.Get("idempotency_key"); key == typedByLink {
			t.Errorf("a link has given a form its idempotency key: %v", fields)
		}
		fields.Del("idempotency_key")
		forms = append(forms, fields)
	}
	return forms
}

const typedByLink = "typed-by-a-link"

// TestALinkFillsNoFormOfTheAdministration opens every form of the administration by a link whose
// query has its fields. The forms must be those of the page without the query.
func TestALinkFillsNoFormOfTheAdministration(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "admin")
	user := "/console/admin/users/" + a.id
	var mismatches struct{ Items []struct{ ID string } }
	a.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &mismatches)
	pages := map[string][]string{ // the actions of each page
		user + "/sign-out": {"user_sign_out"}, user + "/unblock": {"user_unblock"}, user + "/factors": {"user_factors"}, user + "/reset-password": {"user_reset_code"},
		user + "/disable": {"user_disable"}, user + "/enable": {"user_enable"}, user + "/limits": {"user_limits"}, user + "/role": {"user_role"},
		user + "/credit": {"wallet_credit", "wallet_credit_review"}, user + "/debit": {"wallet_debit", "wallet_debit_review"}, user + "/clear": {"wallet_clear", "wallet_clear_review"},
		user + "/grant": {"plan_grant", "plan_grant_review"}, fmt.Sprintf("%s/subscriptions/%d/cancel", user, a.plan): {"plan_cancel"}, user + "/callbacks": {"callback_resend"},
		"/console/admin/tasks/" + a.task: {"task_stop", "task_retry"}, "/console/admin/orders/" + a.orders[0]: {"mismatch_resolve"}, "/console/admin/mismatches": {"mismatch_resolve"},
		"/console/admin/backends": {"backend_drain", "backend_enable", "backend_check"}, "/console/admin/verify": {"verify_run"},
	}
	for path, actions := range pages {
		plain := postForms(t, b.page(t, path))
		for _, action := range append(actions, "") {
			query := url.Values{
				"do": {action}, "amount": {"66.60"}, "reason": {typedByLink}, "case": {typedByLink}, "user": {a.id}, "user_name": {typedByLink}, "plan": {typedByLink}, "plan_id": {"1"},
				"role": {"admin"}, "budget": {"66.60"}, "reset": {"day"}, "requests_per_second": {"66"}, "streams": {"66"}, "tokens_per_minute": {"66"},
				"idempotency_key": {typedByLink}, "id": {mismatches.Items[0].ID}, "backend": {"secret-works"}, "task": {a.task}, "task_id": {a.task}, "as": {typedByLink},
			}
			page := b.page(t, path+"?"+query.Encode())
			linked := postForms(t, page)
			if page.Status != 200 || len(linked) == 0 || fmt.Sprint(linked) != fmt.Sprint(plain) {
				t.Errorf("%s with do=%s: %d, the forms are\n%v, want\n%v", path, action, page.Status, linked, plain)
			}
			if strings.Contains(page.Body, `value="`+typedByLink) || strings.Contains(page.Body, ">"+typedByLink) || strings.Contains(page.Body, "<details open>") {
				t.Errorf("%s with do=%s shows what the link says", path, action)
			}
		}
	}
}

// TestListsOfUsersHaveNoEmailAddresses reads everything that each role can read. Only the account of
// a user has the address, for the roles that may see the account.
func TestListsOfUsersHaveNoEmailAddresses(t *testing.T) {
	s, config := mailing(t)
	g := gatetest.Start(t, config)
	b := newBrowser(g)
	name := b.registers(t)
	const address = "ann.private@example.org"
	b.confirms(t, s, address)
	b.does(t, "PUT", "/api/user/self", `{"balance_notice":"1.23"}`)
	id := b.mailed(t).ID
	g.Credit(t, name, "5.00")
	for _, role := range []string{"admin", "support", "finance"} {
		h := newHolder(t, g, role)
		maySee := []string{"/api/admin/users/" + id}
		if role == "finance" {
			maySee = nil
		}
		fill := strings.NewReplacer("{user}", id)
		for _, row := range adminRows() {
			if row.Method != http.MethodGet || !slices.Contains(row.Roles, role) {
				continue
			}
			path := fill.Replace(row.Path)
			queries := []string{"", "?user=" + id}
			if row.Path == "/api/admin/users" {
				queries = []string{"", "?q=" + id, "?q=" + name, "?limit=1"}
			}
			for _, query := range queries {
				answer := g.Do(t, "GET", path+query, h.cookies(), "")
				if has := strings.Contains(answer.Body, address) || strings.Contains(answer.Body, "balance_notice"); has != (slices.Contains(maySee, path) && answer.Status == 200) {
					t.Errorf("%s reads %s%s: %d, with the address: %v", role, path, query, answer.Status, has)
				}
			}
		}
		for _, path := range []string{"/console/admin/users", "/console/admin/users?q=" + name, "/console/admin/users?q=" + id} {
			page := h.page(t, path)
			if shows(t, page, 200, name); strings.Contains(page.Body, address) {
				t.Errorf("%s is shown the address by %s", role, path)
			}
		}
	}
}

// TestNamesOfActorsAreThoseOfUsers makes events of users, of the operator and of a payment service,
// while users have the names of the latter.
func TestNamesOfActorsAreThoseOfUsers(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: signing, Site: doors})
	b := newBrowser(g)
	name := b.registers(t)
	id := read[struct{ ID string }](t, b, "/api/user/self").ID
	for _, taken := range []string{"admin", "operator", "demo", "unknown", "you"} {
		newBrowser(g).does(t, "POST", "/api/user/register", credentials(taken, password))
	}
	newBrowser(g).refused(t, "POST", "/api/user/register", credentials(id, password), 400, "INVALID_PARAMETER")
	g.Credit(t, name, "5.00") // the operator
	paid := read1[order](t, b, "/api/user/demo/pay", `{"amount":"40.00"}`).TradeNo
	notice := paidNotice("evt_1", paid, "40.00", "USD")
	if got := g.Do(t, "POST", hook, signed("evt_1", notice, g.Now()), notice); got.Status != 200 {
		t.Fatalf("a notice is answered %d %s", got.Status, got.Body)
	}
	b.refused(t, "POST", "/api/user/login", credentials(name, "a wrong password"), 401, "NOT_LOGGED_IN")
	// An administrator whose name is "admin" is shown by the name, with the id.
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/admin/role", map[string]any{"role": "admin"}, nil)
	admin := newBrowser(g)
	admin.does(t, "POST", "/api/user/login", credentials("admin", password))
	admin.enrols(t)
	admin.verifies(t)
	adminID := read[struct{ ID string }](t, admin, "/api/user/self").ID
	admin.does(t, "POST", "/api/admin/wallets/"+id+"/credit", `{"amount":"1.00","reason":"a gift"}`)

	want := map[string]string{"operator": "", "demo": "", "unknown": "", id: name, adminID: "admin"}
	var events struct{ Items []adminEvent }
	into(t, admin.does(t, "GET", "/api/admin/users/"+id+"/activity?limit=100", ""), &events)
	seen := map[string]bool{}
	for _, e := range events.Items {
		seen[e.Actor] = true
		if named, known := want[e.Actor]; !known || e.ActorName != named {
			t.Errorf("%s by %q has the name %q, want %q", e.Action, e.Actor, e.ActorName, named)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("the actors are %v", seen)
	}
	page := admin.page(t, "/console/admin/users/"+id)
	shows(t, page, 200, `href="/console/admin/users/`+adminID+`"><bdi>admin</bdi></a>`, "Payment service Demo")
	if strings.Contains(page.Body, "<bdi>operator</bdi></a>") || strings.Contains(page.Body, "Demo (no real money)</a>") {
		t.Error("an actor that is no user leads to a user")
	}
	// The user sees no administrator, and not a user's name in place of the operator.
	own := string(b.does(t, "GET", "/api/user/activity/?page_size=100", ""))
	if strings.Contains(own, adminID) || strings.Contains(own, "actor_name") || !strings.Contains(own, `"actor":"operator"`) {
		t.Errorf("the user reads %s", own)
	}
	ledger := string(b.does(t, "GET", "/api/user/ledger/", ""))
	if strings.Contains(ledger, adminID) {
		t.Errorf("the ledger of the user names the administrator: %s", ledger)
	}
}

// TestTheSetUpEndsWithTheFirstAdministrator gives users roles, which only ends the set-up if the
// role is that of an administrator.
func TestTheSetUpEndsWithTheFirstAdministrator(t *testing.T) {
	g := start(t)
	line := g.WaitLine(t, func(l gatetest.Line) bool { return strings.HasPrefix(l.Text("msg"), "there is no administrator yet") })
	b := newBrowser(g)
	name := b.registers(t)
	entered := fmt.Sprintf(`{"code":%q,"username":"root","password":%q}`, line.Text("code"), password)
	short := strings.Replace(entered, password, "short", 1) // shows whether a code is taken, and does not use it up
	due := func() bool {
		return read[struct {
			Setup bool `json:"setup_required"`
		}](t, b, "/api/status").Setup
	}
	for _, role := range []string{"support", "finance", "none"} {
		g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": role}, nil)
		if b.refused(t, "POST", "/api/setup", short, 400, "INVALID_PARAMETER"); !due() {
			t.Errorf("the role %s has ended the set-up", role)
		}
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": "admin"}, nil)
	if b.refused(t, "POST", "/api/setup", entered, 409, "CONFLICT"); due() {
		t.Error("there is an administrator, and the set-up is still due")
	}
	// It stays ended when that administrator has no role any more: the operator gives roles.
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": "none"}, nil)
	if b.refused(t, "POST", "/api/setup", entered, 409, "CONFLICT"); due() {
		t.Error("the set-up is due again")
	}
}
