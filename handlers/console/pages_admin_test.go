package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// withRole returns the browser of a user with a role and a second factor, and the user's name.
func withRole(t testing.TB, g *gatetest.Gate, role string) (b *browser, name string) {
	t.Helper()
	b = newBrowser(g)
	name = b.registers(t)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": role}, nil)
	b.does(t, "POST", "/api/user/login", credentials(name, password)) // a new role ends the sessions
	b.enrols(t)
	return b, name
}

// hostile is a text that a page must show as it is.
const hostile = `"><script>alert(1)</script>‮ &amp; 😀`

// administered is a gateway with something to show on every page of the administration.
type administered struct {
	*gatetest.Gate
	customer spender
	browser  *browser // of the customer
	id       string   // of the customer
	orders   [2]string
	task     string
	plan     int64 // the subscription of the customer
}

// administer starts a gateway whose customer has paid one order twice and has a task and a plan.
func administer(t *testing.T) *administered {
	t.Helper()
	g := gatetest.Start(t, gatetest.Config{App: strings.Replace(pricedApp, app, signing, 1) + generating, Site: doors})
	a := &administered{Gate: g}
	a.customer, a.browser = newPageSpender(t, g)
	a.browser.does(t, "PUT", "/api/user/self", fmt.Sprintf(`{"display_name":%q}`, "<b>Ann</b> שלום"))
	a.id = read[struct{ ID string }](t, a.browser, "/api/user/self").ID
	for i := range a.orders {
		a.orders[i] = read1[order](t, a.browser, "/api/user/demo/pay", `{"amount":"40.00"}`).TradeNo
	}
	a.notify(t, "evt_1", a.orders[0])
	a.notify(t, "evt_2", a.orders[0]) // a second payment of the same order
	var sold bought
	into(t, a.browser.does(t, "POST", pay, `{"plan_id":1,"idempotency_key":"first"}`), &sold)
	a.plan = sold.ID
	a.task = a.browser.submitsByPage(t, "image", hostile)
	a.browser.untilShown(t, a.task, "in_progress")
	return a
}

// read1 returns the data of a route that takes a body.
func read1[T any](t testing.TB, b *browser, path, body string) (data T) {
	t.Helper()
	into(t, b.does(t, "POST", path, body), &data)
	return data
}

// notify sends the notice that an order of 40.00 was paid. Each id is another payment.
func (a *administered) notify(t testing.TB, id, tradeNo string) {
	t.Helper()
	body := paidNotice(id, tradeNo, "40.00", "USD")
	if got := a.Do(t, "POST", hook, signed(id, body, a.Now()), body); got.Status != 200 {
		t.Fatalf("a notice is answered %d %s", got.Status, got.Body)
	}
}

// adminLinks matches the links to pages of the administration.
var adminLinks = regexp.MustCompile(`href="(/console/admin[^"#]*)"`)

// walk follows all links between the pages of the administration, and returns their paths. Pages of
// one kind are seen once, beginning with one.
func (b *browser) walk(t *testing.T, first string) (seen []string) {
	t.Helper()
	kind := func(path string) string {
		path, _, _ = strings.Cut(path, "?")
		return regexp.MustCompile(`/((usr_|req_|task_)[A-Za-z0-9]{12,}|[A-Za-z0-9]{32})`).ReplaceAllString(path, "/*")
	}
	for queue := []string{"/console/admin", first}; len(queue) > 0; queue = queue[1:] {
		if slices.Contains(seen, kind(queue[0])) {
			continue
		}
		seen = append(seen, kind(queue[0]))
		answer := b.page(t, queue[0])
		if answer.Status != 200 && answer.Header.Get("Location") == "" {
			t.Errorf("%s: %d", queue[0], answer.Status)
		}
		if strings.Contains(answer.Body, "<script>alert") || strings.Contains(answer.Body, "<b>") || strings.Contains(answer.Body, "<no value>") {
			t.Errorf("%s has what it must not have: %s", queue[0], answer.Body)
		}
		for _, found := range adminLinks.FindAllStringSubmatch(answer.Body, -1) {
			queue = append(queue, unescape.Replace(found[1]))
		}
	}
	slices.Sort(seen)
	return seen
}

func TestEveryPageOfTheAdministrationIsReachedByItsRoles(t *testing.T) {
	a := administer(t)
	user := "/console/admin/users/*"
	everyone := []string{
		"/console/admin", "/console/admin/calls", "/console/admin/calls/*", "/console/admin/find", "/console/admin/mismatches", "/console/admin/orders", "/console/admin/orders/*",
		"/console/admin/transfers/*", "/console/admin/receipts", "/console/admin/usage", "/console/admin/users", user, user + "/ledger",
	}
	people := append(slices.Clone(everyone), "/console/admin/backends", "/console/admin/tasks", "/console/admin/tasks/*", "/console/admin/verify",
		user+"/callbacks", user+"/sign-out")
	admins := append(slices.Clone(people), user+"/clear", user+"/credit", user+"/debit", user+"/disable", user+"/enable", user+"/factors", user+"/grant", user+"/limits", user+"/reset-password",
		user+"/role", fmt.Sprintf("%s/subscriptions/%d/cancel", user, a.plan), user+"/unblock")
	// What only fits another state of a user has no link: it is opened below by its address.
	unlinked := []string{user + "/clear", user + "/enable", user + "/unblock", "/console/admin/find"}
	address := strings.NewReplacer("users/*", "users/"+a.id, "orders/*", "orders/"+a.orders[0], "transfers/*", "transfers/"+a.transfer(t), "tasks/*", "tasks/"+a.task, "calls/*", "calls/"+a.customer.ids[1])
	for role, may := range map[string][]string{"admin": admins, "support": append(people, user+"/factors", user+"/unblock"), "finance": everyone} {
		b, _ := withRole(t, a.Gate, role)
		shows(t, b.page(t, "/console"), 200, `href="/console/admin"`)
		b.jar["modelgate_language"] = "zh"
		b.walk(t, address.Replace(user))
		b.jar["modelgate_language"] = "en"
		seen := b.walk(t, address.Replace(user))
		for _, path := range seen {
			if !slices.Contains(may, path) {
				t.Errorf("%s is led to %s", role, path)
			}
		}
		for _, path := range admins {
			answer := b.page(t, address.Replace(path))
			switch {
			case !slices.Contains(may, path):
				shows(t, answer, 403, "<code>FORBIDDEN</code>")
			default:
				shows(t, answer, 200)
				if !slices.Contains(seen, path) && !slices.Contains(unlinked, path) && !(path == user+"/factors") {
					t.Errorf("%s is not led to %s, but to %q", role, path, seen)
				}
			}
		}
	}
	if refused := a.browser.page(t, "/console/admin"); strings.Contains(refused.Body, "/console/security\">Security</a></p>") || !strings.Contains(refused.Body, "for the staff of this gateway") {
		t.Errorf("a customer is told %s", refused.Body)
	}
	for _, path := range admins {
		shows(t, a.browser.page(t, address.Replace(path)), 403, "<code>FORBIDDEN</code>")
		leads(t, newBrowser(a.Gate).page(t, address.Replace(path)), "/console/login?next="+url.QueryEscape(address.Replace(path)))
	}
	if strings.Contains(a.browser.page(t, "/console").Body, "/console/admin") {
		t.Error("a customer is led to the administration")
	}
}

func TestARoleNeedsASecondFactor(t *testing.T) {
	t.Parallel()
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/role", map[string]any{"role": "admin"}, nil)
	b.does(t, "POST", "/api/user/login", credentials(name, password)) // a new role ends the sessions
	for _, body := range b.languages(t, "/console/admin", 403) {
		if !strings.Contains(body, `<a href="/console/security">`) {
			t.Errorf("the page does not lead to the second factor: %s", body)
		}
	}
	b.enrols(t)
	shows(t, b.page(t, "/console/admin"), 200, "Open payment mismatches")
}

func TestASiteMayHaveNoPagesOfTheAdministration(t *testing.T) {
	t.Parallel()
	g := gatetest.Start(t, gatetest.Config{App: app, Site: strings.Replace(site, "modelgate_console {", "modelgate_console {\nadmin off", 1)})
	b, _ := withRole(t, g, "admin")
	shows(t, b.page(t, "/console/admin"), 404, "<code>NOT_FOUND</code>")
	if strings.Contains(b.page(t, "/console").Body, "/console/admin") {
		t.Error("a page leads to the administration")
	}
}

func TestAUserIsShownWhole(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "support")
	page := b.page(t, "/console/admin/users/"+a.id)
	wallet := a.Wallet(t, a.id)
	shows(t, page, 200, a.id, "&lt;b&gt;Ann&lt;/b&gt; שלום", wallet.Balance.String()+" USD", a.customer.ids[5], a.task, a.orders[1], "Starter",
		"&lt;script&gt;alert(&#34;שלום😀&#34;)", "&lt;b&gt;שלום&lt;/b&gt; &amp; 😀", "Account created", "Log the user out")
	if strings.Contains(page.Body, "/credit") {
		t.Error("support is led to a credit")
	}
	// Finance sees the money of a user, and not the person.
	finance, _ := withRole(t, a.Gate, "finance")
	page = finance.page(t, "/console/admin/users/"+a.id)
	shows(t, page, 200, wallet.Balance.String()+" USD", "Starter")
	for _, private := range []string{"sign-out", a.customer.keys[0].ID, "Account created", "/tasks"} {
		if strings.Contains(page.Body, private) {
			t.Errorf("finance sees %q", private)
		}
	}
	shows(t, b.page(t, "/console/admin/users/nobody"), 404, "<code>NOT_FOUND</code>")
}

func TestTheListOfUsersHasPages(t *testing.T) {
	t.Parallel()
	g := start(t)
	b, _ := withRole(t, g, "finance")
	for i := range 25 {
		g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": fmt.Sprintf("many-%02d", i)}, nil)
	}
	seen, path := map[string]bool{}, "/console/admin/users?q=many-"
	next := regexp.MustCompile(`rel="next" href="([^"]*)"`)
	for pages := 1; ; pages++ {
		body := b.page(t, path).Body
		for _, found := range regexp.MustCompile(`>(many-\d\d)<`).FindAllStringSubmatch(body, -1) {
			seen[found[1]] = true
		}
		found := next.FindStringSubmatch(body)
		if found == nil {
			if pages != 2 || len(seen) != 25 || !strings.Contains(body, "First page") {
				t.Errorf("%d users on %d pages", len(seen), pages)
			}
			return
		}
		path = unescape.Replace(found[1])
	}
}

func TestTheListsOfTheAdministrationFilter(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "support")
	today := a.Now().UTC().Format(time.DateOnly)
	for path, want := range map[string]int{
		"calls?model=dear": 2, "calls?user=" + a.customer.name: 6, "calls?user=" + a.id + "&status=4xx": 1, "calls?key=" + a.customer.keys[1].ID: 2, "calls?min_cost=0.2": 3,
		"calls?from=" + today + "&to=" + today: 6, "calls?to=2020-01-01": 0, "calls?user=&model=&status=": 6,
		"orders": 2, "orders?status=paid": 1, "orders?status=pending&user=" + a.id: 1, "orders?provider=stripe": 0, "orders?to=2020-01-01": 0, "orders?payment=pay_evt_1": 1, "orders?payment=pay_evt_9": 0,
		"orders?time=paid": 1, "orders?time=paid&from=" + today + "&to=" + today: 1, "orders?time=paid&to=2020-01-01": 0,
		"tasks?status=in_progress": 1, "tasks?status=failed": 0, "tasks?user=" + a.customer.name: 1,
	} {
		kind, _, _ := strings.Cut(path, "?")
		answer := b.page(t, "/console/admin/"+path)
		shows(t, answer, 200)
		links := map[string]bool{}
		for _, found := range regexp.MustCompile(`href="/console/admin/`+kind+`/(\w+)"`).FindAllStringSubmatch(answer.Body, -1) {
			links[found[1]] = true
		}
		if len(links) != want || want == 0 && !strings.Contains(answer.Body, `class="empty"`) {
			t.Errorf("%s: %d are listed, want %d", path, len(links), want)
		}
	}
	shows(t, b.page(t, "/console/admin/orders"), 200, `class="num">2</td>`, "80.00 USD", "<strong>40.00 USD</strong>", "<code>pay_evt_1</code>", `<option value="demo">`)
	leads(t, b.seeks(t, "pay_evt_1"), "/console/admin/orders/"+a.orders[0])
	leads(t, b.seeks(t, "pay_evt_2"), "/console/admin/mismatches?payment=pay_evt_2&status=all")
	shows(t, b.page(t, "/console/admin/mismatches?payment=pay_evt_2&status=all"), 200, "the order was paid by another payment")
	// Two calls are told apart by the second.
	for path, by := range map[string]*browser{"/console/admin/calls": b, "/console/admin/calls/" + a.customer.ids[1]: b, "/console/usage": a.browser, "/console/usage/" + a.customer.ids[1]: a.browser} {
		if body := by.page(t, path).Body; !regexp.MustCompile(` data-exact>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC<`).MatchString(body) {
			t.Errorf("%s shows no seconds", path)
		}
	}
	// Finance is led to no task.
	finance, _ := withRole(t, a.Gate, "finance")
	ledger := finance.page(t, fmt.Sprintf("/console/admin/users/%s/ledger?account=quota/%d", a.id, a.plan))
	shows(t, ledger, 200, "<code>"+a.task+"</code>")
	if home := finance.page(t, "/console/admin"); strings.Contains(ledger.Body+home.Body, "/tasks/") || strings.Contains(home.Body, "task_") {
		t.Error("finance is led to tasks")
	}
	shows(t, finance.seeks(t, a.task), 403, "needs the role Administrator, Support")
	for path, status := range map[string]int{
		"calls?status=abc": 400, "calls?user=nobody": 404, "calls?from=yesterday": 400, "calls?min_cost=x": 400, "orders?user=nobody": 404, "orders?from=x": 400,
		"mismatches?user=nobody": 404, "mismatches?kind=x": 400, "tasks?user=nobody": 404, "receipts?from=x": 400, "usage?from=x": 400, "usage?group=x": 400, "usage?user=nobody": 404,
	} {
		name, value, _ := strings.Cut(path[strings.Index(path, "?")+1:], "=")
		answer := b.page(t, "/console/admin/"+path)
		shows(t, answer, status, `role="alert"`)
		if name != "kind" && name != "group" {
			shows(t, answer, status, `value="`+value+`"`, "aria-invalid")
		}
	}
}

func TestReportsHaveTheFiguresOfTheLedger(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "finance")
	today := a.Now().UTC().Format(time.DateOnly)
	shows(t, b.page(t, "/console/admin/receipts"), 200, "<strong>40.00 USD</strong>", today, url.QueryEscape("/api/admin/ledger?from="), "What was bought", "Top-up", "Plan bought", "Starter")
	shows(t, b.page(t, "/console/admin/receipts?to=2020-01-01&from="), 200, "No payments in these days.")
	for group, row := range map[string]string{"day": today, "model": "<bdi>dear</bdi>", "user": ">" + a.customer.name + "<", "key": a.customer.keys[0].ID} {
		shows(t, b.page(t, "/console/admin/usage?group="+group), 200, row, ">6</p>")
	}
	for path, row := range map[string]string{
		"payments?group=day&group=provider": today + ",demo,USD,1,40.00,0.00,0.00,0.00,40.00,1\n", "usage?group=user": a.customer.name + ",,,,,6,",
		"sales?group=day": today + ",topup,,,USD,1,40.00\n", "orders?status=paid": ",demo,pay_evt_1,paid,40.00,0.00,0.00,0.00,40.00,USD\n",
	} {
		if file := b.visitsPlain(t, "/api/admin/"+path+"&format=csv"); file.Status != 200 || !strings.Contains(file.Body, row) {
			t.Errorf("%s is %d %s", path, file.Status, file.Body)
		}
	}
	// The file is grouped as the page is, and a link to it outlives the session.
	found := regexp.MustCompile(`href="(/console/download\?of=[^"]*group%3Dkey[^"]*)"`).FindStringSubmatch(b.page(t, "/console/admin/usage?group=key").Body)
	if found == nil {
		t.Fatal("the usage by key has no file by key")
	}
	to := b.page(t, unescape.Replace(found[1]))
	if file := b.visitsPlain(t, to.Header.Get("Location")); to.Status != 303 || !strings.Contains(file.Body, a.customer.keys[0].ID) || !strings.Contains(file.Header.Get("Content-Disposition"), "usage.csv") {
		t.Errorf("the file is %d %s %v", file.Status, file.Body, file.Header)
	}
	leads(t, newBrowser(a.Gate).page(t, "/console/download?of=%2Fapi%2Fadmin%2Fledger"), "/console/login?next=%2Fconsole%2Fdownload%3Fof%3D%252Fapi%252Fadmin%252Fledger")
	for _, of := range []string{"https://evil.example/api/x", "//evil.example/api/x", "/console", "/api/../console", ""} {
		shows(t, b.page(t, "/console/download?of="+url.QueryEscape(of)), 404)
	}
	export := b.visitsPlain(t, "/api/admin/ledger?from="+today)
	if export.Status != 200 || !strings.Contains(export.Body, a.orders[0]) {
		t.Errorf("the export is %d %.200s", export.Status, export.Body)
	}
}
