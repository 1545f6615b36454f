package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// customer registers a user with money in the wallet, and logs in.
func customer(t testing.TB, g *gatetest.Gate, credit string) (b *browser, name string) {
	t.Helper()
	b = newBrowser(g)
	name = b.registers(t)
	if credit != "" {
		g.Credit(t, name, credit)
	}
	return b, name
}

// read returns the data of a route of the API.
func read[T any](t testing.TB, b *browser, path string) (data T) {
	t.Helper()
	into(t, b.does(t, "GET", path, ""), &data)
	return data
}

// lines returns the kinds and amounts of the lines of an account, newest first.
func (b *browser) lines(t testing.TB, account string) string {
	t.Helper()
	var shown []string
	for _, l := range read[page[line]](t, b, "/api/user/ledger/?account="+account).Items {
		shown = append(shown, l.Kind+" "+l.Amount.String())
	}
	return strings.Join(shown, ", ")
}

// sendsAtOnce sends a form several times at once, as an impatient user does, and returns the
// answers.
func (b *browser) sendsAtOnce(t testing.TB, path string, form url.Values) []gatetest.Answer {
	t.Helper()
	headers := b.cookies() + "Accept: text/html\nSec-Fetch-Site: same-origin\nContent-Type: application/x-www-form-urlencoded\n"
	return inParallel(10, func(int) gatetest.Answer { return b.gate.Do(t, "POST", path, headers, form.Encode()) })
}

func TestAPurchaseByAFormIsChargedOnce(t *testing.T) {
	g := start(t)
	b, _ := customer(t, g, "25.00")
	shows(t, b.page(t, "/console/wallet"), 200, "25.00 USD", `href="/console/plans/1?once=`, "Starter")
	shown := b.page(t, "/console/plans/1")
	shows(t, shown, 200, "12.00 USD to spend on calls and tasks", "1 month", ">25.00 USD<", ">9.90 USD<", ">15.10 USD<")
	form := hidden(t, shown.Body, "buy")
	leadsOnce(t, b.sendsAtOnce(t, "/console/plans/1", form), "/console/wallet?done=bought", "/console/wallet?done=replayed") // a double click
	for range 2 {                                                                                                            // a reload
		leads(t, b.sends(t, "/console/plans/1", form), "/console/wallet?done=replayed")
	}
	if got, want := b.lines(t, "wallet"), "purchase -9.90, credit 25.00"; got != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
	shows(t, b.page(t, "/console/wallet?done=bought"), 200, "15.10 USD", "paid once", "0.00 of 12.00 USD used", `<meter `)
	// The page warns of a second subscription, and its form is for a second charge.
	again := b.page(t, "/console/plans/1")
	shows(t, again, 200, "You have this plan already")
	if second := hidden(t, again.Body, "buy"); second.Get("idempotency_key") == form.Get("idempotency_key") || len(second.Get("idempotency_key")) < 20 {
		t.Errorf("the keys are %q and %q", form.Get("idempotency_key"), second.Get("idempotency_key"))
	}
	// The query of a link cannot choose the key.
	for _, query := range []string{"idempotency_key=chosen", "once=chosen", "once=" + strings.Repeat("a", 5000)} {
		if key := hidden(t, b.page(t, "/console/plans/1?"+query).Body, "buy").Get("idempotency_key"); !regexp.MustCompile("^[A-Z2-7]{26}$").MatchString(key) {
			t.Errorf("a link chooses the idempotency key %.20q", key)
		}
	}
	g.Verify(t)
}

// leadsOnce checks that one of the answers leads to a path, and all others to another one.
func leadsOnce(t testing.TB, answers []gatetest.Answer, to, others string) {
	t.Helper()
	times := 0
	for _, answer := range answers {
		if answer.Header.Get("Location") == to {
			times++
			continue
		}
		leads(t, answer, others)
	}
	if times != 1 {
		t.Errorf("%d answers lead to %s", times, to)
	}
}

// TestTheBackButtonChargesNothing goes back after a purchase, a renewal and a task. The browser
// loads the page again, because it keeps none.
func TestTheBackButtonChargesNothing(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app + generating, Site: site})
	b, _ := customer(t, g, "50.00")
	link := func(page, pattern string) string {
		t.Helper()
		found := regexp.MustCompile(`href="(` + pattern + `)"`).FindStringSubmatch(b.page(t, page).Body)
		if found == nil {
			t.Fatalf("%s has no link %s", page, pattern)
		}
		return unescape.Replace(found[1])
	}
	for _, c := range []struct{ page, link, action, done, lines string }{
		{"/console/wallet", `/console/plans/1\?once=\w+`, "buy", "bought", "purchase -9.90, credit 50.00"},
		{"/console/wallet", `/console/subscriptions/1/renew\?once=\w+`, "renew", "renewed", "renewal -9.90, purchase -9.90, credit 50.00"},
		{"/console/subscriptions/1", `/console/subscriptions/1/renew\?once=\w+`, "renew", "renewed", "renewal -9.90, renewal -9.90, purchase -9.90, credit 50.00"},
	} {
		path := link(c.page, c.link)
		leads(t, b.sends(t, path, hidden(t, b.page(t, path).Body, c.action)), "/console/wallet?done="+c.done)
		leads(t, b.sends(t, path, hidden(t, b.page(t, path).Body, c.action)), "/console/wallet?done=replayed")
		if got := b.lines(t, "wallet"); got != c.lines {
			t.Errorf("the ledger has %q, want %q", got, c.lines)
		}
	}
	shows(t, b.page(t, "/console/wallet?done=replayed"), 200, "charged only once")

	// Browsers fill the page of a task as before. With the same content it is the same task, and with
	// another one a new task.
	path := link("/console/tasks/new", `/console/tasks/new\?once=\w+&amp;model=video-test-1`)
	submit := func(prompt string) string {
		form := taskForm("submit_task", "video", prompt, "idempotency_key", regexp.MustCompile(`name="idempotency_key" value="(\w+)"`).FindStringSubmatch(b.page(t, path).Body)[1])
		where, _, _ := strings.Cut(b.sends(t, path, form).Header.Get("Location"), "?")
		return where
	}
	first, again, other := submit("a boat"), submit("a boat"), submit("a ship")
	if first == "" || first != again || other == first || other == "" {
		t.Errorf("the tasks are %q, %q and %q", first, again, other)
	}
	g.Verify(t)
}

func TestARenewalByAFormIsChargedOnce(t *testing.T) {
	g := start(t)
	b, _ := customer(t, g, "25.00")
	other, _ := customer(t, g, "25.00")
	var sold bought
	into(t, b.does(t, "POST", pay, `{"plan_id":1,"idempotency_key":"first"}`), &sold)
	path := fmt.Sprintf("/console/subscriptions/%d", sold.ID)
	shows(t, b.page(t, path), 200, "Starter", "0.00 of 12.00 USD used", fmt.Sprintf(`href="/console/ledger?account=quota/%d"`, sold.ID), path+"/renew")
	shows(t, b.page(t, "/console/subscriptions"), 200, path, "Running")
	shows(t, other.page(t, path), 404, "SUBSCRIPTION_NOT_FOUND")
	shows(t, other.page(t, path+"/renew"), 404, "SUBSCRIPTION_NOT_FOUND")
	shown := b.page(t, path+"/renew")
	shows(t, shown, 200, ">15.10 USD<", ">9.90 USD<", ">5.20 USD<", "1 month")
	form := hidden(t, shown.Body, "renew")
	leadsOnce(t, b.sendsAtOnce(t, path+"/renew", form), "/console/wallet?done=renewed", "/console/wallet?done=replayed")
	leads(t, b.sends(t, path+"/renew", form), "/console/wallet?done=replayed")
	if got, want := b.lines(t, "wallet"), "renewal -9.90, purchase -9.90, credit 25.00"; got != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
	shows(t, b.page(t, "/console/wallet?done=renewed"), 200, "0.00 of 24.00 USD used")
	shows(t, b.page(t, path+"/renew"), 200, "4.70 USD is missing", "/console/wallet?amount=4.70#topup")
	g.Verify(t)
}

// TestAFormOfAnotherUserIsRefused is the case of two tabs: after the page of one user was loaded,
// another user logs in with the same browser.
func TestAFormOfAnotherUserIsRefused(t *testing.T) {
	g := start(t)
	first, _ := customer(t, g, "25.00")
	second, _ := customer(t, g, "25.00")
	for path, action := range map[string]string{"/console/plans/1": "buy", "/console/plans/2": "claim", "/console/wallet": "topup"} {
		form := hidden(t, first.page(t, path).Body, action)
		form.Set("amount", "5.00")
		form.Set("provider", "demo")
		shows(t, second.sends(t, path, form), 409, "Another user", "Nothing was done")
	}
	for _, b := range []*browser{first, second} {
		if got := b.lines(t, "wallet"); got != "credit 25.00" {
			t.Errorf("the ledger has %q", got)
		}
		if orders := read[page[order]](t, b, "/api/user/topup/self/"); orders.Total != 0 {
			t.Errorf("the orders are %+v", orders)
		}
	}
}

func TestAPurchaseThatNeedsAStepUpKeepsItsKey(t *testing.T) {
	g := protecting(t)
	b, _ := customer(t, g, "25.00")
	b.enrols(t)
	g.Wait(time.Hour)
	form := hidden(t, b.page(t, "/console/plans/1").Body, "buy")
	asked := b.sends(t, "/console/plans/1", form)
	shows(t, asked, 200, "buy the plan", `name="code"`)
	if strings.Contains(asked.Body, "2fa</p>") {
		t.Errorf("the page has the text of the API: %s", asked.Body)
	}
	verify := hidden(t, asked.Body, "verify")
	verify.Set("code", strings.Trim(b.code(t), `"`))
	confirm := b.sends(t, "/console/verify", verify)
	shows(t, confirm, 200, "Nothing has been done yet", "Starter", "9.90", "Balance now", "25.00 USD", "<strong>15.10 USD</strong>")
	confirmed := hidden(t, confirm.Body, "buy")
	if confirmed.Get("idempotency_key") != form.Get("idempotency_key") || confirmed.Get("plan_id") != "1" {
		t.Errorf("the form was %v and is %v", form, confirmed)
	}
	leads(t, b.sends(t, "/console/plans/1", confirmed), "/console/wallet?done=bought")
	leads(t, b.sends(t, "/console/plans/1", confirmed), "/console/wallet?done=replayed")
	leads(t, b.sends(t, "/console/plans/1", form), "/console/wallet?done=replayed") // the first page, by the back button
	if got, want := b.lines(t, "wallet"), "purchase -9.90, credit 25.00"; got != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
}

func TestATopUpByAFormIsOneOrder(t *testing.T) {
	g := start(t)
	b, _ := customer(t, g, "")
	other, _ := customer(t, g, "")
	shown := b.page(t, "/console/wallet?amount=7.50")
	shows(t, shown, 200, "The wallet is empty", "From 1.00 to 500.00 USD", `value="7.50"`, `name="provider" value="demo"`)
	form := hidden(t, shown.Body, "topup")
	form.Set("provider", "demo")
	for amount, code := range map[string]string{"0.10": "AMOUNT_OUT_OF_RANGE", "": "MISSING_PARAMETER", `"><script>alert(1)</script>`: "INVALID_PARAMETER"} {
		form.Set("amount", amount)
		refused := b.sends(t, "/console/wallet", form)
		shows(t, refused, 400, code, `role="alert"`, "aria-invalid")
		if strings.Contains(refused.Body, "<script>a") || hidden(t, refused.Body, "topup").Get("idempotency_key") != form.Get("idempotency_key") {
			t.Errorf("refused with %s", refused.Body)
		}
	}
	for provider, status := range map[string]int{"": 400, "stripe": 404, "../x": 404, "a b": 404} {
		form.Set("provider", provider)
		form.Set("amount", "5.00")
		if answer := b.sends(t, "/console/wallet", form); answer.Status != status {
			t.Errorf("the service %q: %d, want %d", provider, answer.Status, status)
		}
	}

	form.Set("provider", "demo")
	form.Set("amount", "25.00")
	onward := regexp.MustCompile(`<a class="button" href="([^"]*)" rel="noreferrer" data-onward>`)
	var pages []string
	for _, answer := range append(b.sendsAtOnce(t, "/console/wallet", form), b.sends(t, "/console/wallet", form)) {
		shows(t, answer, 200, "25.00 USD", "Continue to the payment page")
		if found := onward.FindStringSubmatch(answer.Body); found != nil && answer.Header.Get("Location") == "" {
			pages = append(pages, found[1])
		}
	}
	orders := read[page[order]](t, b, "/api/user/topup/self/")
	if orders.Total != 1 || len(pages) != 11 || strings.Join(pages, "") != strings.Repeat(orders.Items[0].PayURL, 11) {
		t.Fatalf("%d orders, the links are %q", orders.Total, pages)
	}
	form.Set("amount", "30.00")
	changed := b.sends(t, "/console/wallet", form)
	shows(t, changed, 422, "Send it once more to open a second payment", `value="30.00"`)
	if hidden(t, changed.Body, "topup").Get("idempotency_key") == form.Get("idempotency_key") {
		t.Error("the form keeps a key that was used for another order")
	}

	path := "/console/orders/" + orders.Items[0].TradeNo
	shows(t, other.page(t, path), 404, "NOT_FOUND")
	shows(t, b.page(t, path), 200, "Waiting", "data-refresh", pages[0])
	if got := g.Do(t, "POST", strings.TrimPrefix(pages[0], g.URL("")), fromThePage, "action=pay"); got.Status != 200 {
		t.Fatalf("paying: %d %s", got.Status, got.Body)
	}
	paid := b.page(t, path)
	shows(t, paid, 200, "The payment has arrived", ">25.00 USD<")
	if strings.Contains(paid.Body, "data-refresh") {
		t.Error("the page of a paid order waits")
	}
	form.Set("amount", "25.00")
	again := b.sends(t, "/console/wallet", form) // by the back button
	shows(t, again, 200, "Nothing new was opened", "Paid", path)
	if strings.Contains(again.Body, "data-onward") {
		t.Error("a paid order leads to the payment page")
	}
	if got := b.lines(t, "wallet"); got != "topup 25.00" {
		t.Errorf("the ledger has %q", got)
	}
	shows(t, b.page(t, "/console/orders"), 200, path, "25.00 USD", "Paid")
}

func TestPlansThatCannotBeBoughtSayWhy(t *testing.T) {
	g := start(t)
	b, name := customer(t, g, "5.00")
	buyOnce := hidden(t, b.page(t, "/console/plans/3").Body, "buy")
	leads(t, b.sends(t, "/console/plans/3", buyOnce), "/console/wallet?done=bought")
	claim := hidden(t, b.page(t, "/console/plans/2").Body, "claim")
	leads(t, b.sends(t, "/console/plans/2", claim), "/console/wallet?done=claimed")
	for _, c := range []struct{ path, says string }{
		{"/console/plans/1", "5.90 USD is missing"},
		{"/console/plans/2", "You have claimed this plan already"},
		{"/console/plans/3", "as often as one user can"},
		{"/console/plans/4", "This plan is not on sale"},
	} {
		shown := b.page(t, c.path)
		shows(t, shown, 200, c.says, `role="alert"`)
		if strings.Contains(shown.Body, `name="do" value="buy"`) || strings.Contains(shown.Body, `name="do" value="claim"`) {
			t.Errorf("%s has a form", c.path)
		}
	}
	for path, code := range map[string]string{"/console/plans/99": "PLAN_NOT_FOUND", "/console/plans/x": "PLAN_NOT_FOUND", "/console/subscriptions/99": "SUBSCRIPTION_NOT_FOUND"} {
		shows(t, b.page(t, path), 404, code)
	}
	shows(t, b.page(t, "/console/wallet"), 200, "You have claimed this plan already", "as often as one user can")
	// A form that was loaded before is refused, and costs nothing.
	buyOnce.Set("idempotency_key", "another-key-of-the-form")
	shows(t, b.sends(t, "/console/plans/3", buyOnce), 409, "PURCHASE_LIMIT_REACHED")
	shows(t, b.sends(t, "/console/plans/2", claim), 409, "ALREADY_CLAIMED")
	buyOnce.Set("plan_id", "1")
	buyOnce.Set("price", "9.90")
	shows(t, b.sends(t, "/console/plans/1", buyOnce), 402, "INSUFFICIENT_BALANCE", "5.90 USD is missing")
	if got, want := b.lines(t, "wallet"), "purchase -1.00, credit 5.00"; got != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}

	var cancelled, free int64
	for _, s := range read[page[bought]](t, b, "/api/subscription/self/").Items {
		if s.PlanID == 2 {
			free = s.ID
		} else {
			cancelled = s.ID
		}
	}
	shows(t, b.page(t, fmt.Sprintf("/console/subscriptions/%d/renew", free)), 200, "cannot be renewed", `role="alert"`)
	g.MustAdmin(t, http.MethodPost, fmt.Sprintf("/modelgate/subscriptions/%d/cancel", cancelled), map[string]any{"reason": "a test"}, nil)
	shows(t, b.page(t, fmt.Sprintf("/console/subscriptions/%d/renew", cancelled)), 200, "has cancelled this subscription")
	shows(t, b.page(t, "/console/subscriptions"), 200, "Cancelled", "Running")

	if err := g.Reload(gatetest.Config{App: strings.Replace(strings.Replace(app, "payment demo", "", 1), "plan 2 Trial {", "plan 2 Trial {\ndisabled", 1), Site: site}); err != nil {
		t.Fatal(err)
	}
	shows(t, b.page(t, "/console/wallet"), 200, "This gateway takes no online payments", name)
	shows(t, b.page(t, fmt.Sprintf("/console/subscriptions/%d/renew", free)), 200, "not sold any more")
}

func TestAPriceThatHasChangedSinceThePageIsNotCharged(t *testing.T) {
	g := start(t)
	b, _ := customer(t, g, "50.00")
	form := hidden(t, b.page(t, "/console/plans/1").Body, "buy")
	leads(t, b.sends(t, "/console/plans/1", form), "/console/wallet?done=bought")
	subscription := fmt.Sprintf("/console/subscriptions/%d/renew", read[page[bought]](t, b, "/api/subscription/self/").Items[0].ID)
	second, renew := hidden(t, b.page(t, "/console/plans/1").Body, "buy"), hidden(t, b.page(t, subscription).Body, "renew")
	if err := g.Reload(gatetest.Config{App: strings.Replace(app, "price 9.90", "price 10.90", 1), Site: site}); err != nil {
		t.Fatal(err)
	}
	shows(t, b.sends(t, "/console/plans/1", second), 409, "CONFLICT", "costs 10.90 now, not 9.90", ">10.90 USD<")
	shows(t, b.sends(t, subscription, renew), 409, "CONFLICT", "costs 10.90 now, not 9.90", ">10.90 USD<")
	leads(t, b.sends(t, "/console/plans/1", form), "/console/wallet?done=replayed")
	second.Set("price", "10.90")
	leads(t, b.sends(t, "/console/plans/1", second), "/console/wallet?done=bought")
	if got, want := b.lines(t, "wallet"), "purchase -10.90, purchase -9.90, credit 50.00"; got != want {
		t.Errorf("the ledger has %q, want %q", got, want)
	}
	b.refused(t, "POST", pay, `{"plan_id":1,"idempotency_key":"x","price":"9.90"}`, 409, "CONFLICT")
}

func TestThePageOfAnOrderSaysWhatToDo(t *testing.T) {
	g := start(t)
	b, name := customer(t, g, "")
	open := func() (o order, path string) {
		into(t, b.does(t, "POST", "/api/user/demo/pay", `{"amount":"5.00"}`), &o)
		return o, "/console/orders/" + o.TradeNo
	}
	o, path := open()
	for _, step := range []struct{ action, state, says string }{
		{"decline", "Not paid", "Top up again"},
		{"pay", "Paid", "nothing more to do"},
		{"dispute", "Disputed", "withdraw the dispute"},
		{"restore", "Paid", "nothing more to do"},
	} {
		if got := g.Do(t, "POST", strings.TrimPrefix(o.PayURL, g.URL("")), fromThePage, "action="+step.action); got.Status != 200 {
			t.Fatalf("%s: %d %s", step.action, got.Status, got.Body)
		}
		shows(t, b.page(t, path), 200, step.state, step.says)
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+name+"/debit", map[string]any{"amount": "3.00", "reason": "spent"}, nil)
	g.Do(t, "POST", strings.TrimPrefix(o.PayURL, g.URL("")), fromThePage, "action=refund")
	shows(t, b.page(t, path), 200, "Refunded", "You owe 3.00 USD")
	shows(t, b.page(t, "/console/wallet"), 200, "You owe 3.00 USD", "ask the operator", "/console/ledger?account=receivable")
	owing := b.page(t, "/console/plans/3")
	shows(t, owing, 200, "You owe 3.00 USD")
	if strings.Contains(owing.Body, `value="buy"`) {
		t.Error("a user who owes something gets the form")
	}
	shows(t, b.page(t, "/console/ledger?account=receivable"), 200, "−3.00", "Refund", path)

	_, path = open()
	shows(t, b.page(t, path), 200, "Waiting")
	g.Wait(25 * time.Hour)
	b.does(t, "POST", "/api/user/login", credentials(name, password))
	shows(t, b.page(t, path), 200, "Expired", "Nobody paid within 24 hours")
}

// tableRows returns the texts of the cells of a page's table.
func tableRows(page string) (rows [][]string) {
	_, page, _ = strings.Cut(page, "<tbody>")
	for _, row := range regexp.MustCompile(`(?s)<tr>.*?</tr>`).FindAllString(page, -1) {
		var cells []string
		for _, cell := range regexp.MustCompile(`(?s)<td[^>]*>(.*?)</td>`).FindAllStringSubmatch(row, -1) {
			cells = append(cells, strings.TrimSpace(unescape.Replace(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(cell[1], ""))))
		}
		rows = append(rows, cells)
	}
	return rows
}

func TestTheLedgerPageHasTheFiguresOfTheLedger(t *testing.T) {
	g := startGenerating(t, "")
	b, name := customer(t, g, "1234.567000001")
	other, _ := customer(t, g, "")
	hostile := "<b>bold</b> \u202egnp.exe 🦊 &amp;"
	for range 25 {
		g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+name+"/credit", map[string]any{"amount": "0.01", "reason": hostile}, nil)
	}
	var sold bought
	into(t, b.does(t, "POST", pay, `{"plan_id":1,"idempotency_key":"k"}`), &sold)
	into(t, b.does(t, "PUT", "/api/subscription/self/preference", `{"preference":"wallet_first"}`), new(any))
	var task seenTask
	into(t, b.does(t, "POST", "/api/task/self/", film("runs")), &task)

	balances := make(map[string]bool)
	for _, account := range []string{"wallet", fmt.Sprintf("quota/%d", sold.ID), "receivable"} {
		lines := read[page[line]](t, b, "/api/user/ledger/?account="+account)
		shown := b.page(t, "/console/ledger?account="+account)
		shows(t, shown, 200)
		rows := tableRows(shown.Body)
		if len(rows) != len(lines.Items) {
			t.Fatalf("%s: %d rows for %d lines", account, len(rows), len(lines.Items))
		}
		digits := strings.NewReplacer(",", "", "−", "-", "+", "", " USD", "")
		for i, l := range lines.Items {
			amount, _, _ := strings.Cut(digits.Replace(rows[i][3]), " ")
			if amount != l.Amount.String() || digits.Replace(rows[i][4]) != l.Balance.String() || !strings.Contains(rows[i][2], l.Reason) {
				t.Errorf("%s: the line %+v is shown as %q", account, l, rows[i])
			}
			if l.Held != "0.00" && !strings.Contains(rows[i][3], strings.TrimPrefix(l.Held, "-")) {
				t.Errorf("%s: the line %+v is shown as %q", account, l, rows[i])
			}
			balances[l.Balance.String()] = true
		}
	}
	first := b.page(t, "/console/ledger")
	shows(t, first, 200, "&lt;b&gt;bold&lt;/b&gt;", "/console/tasks/"+task.ID, fmt.Sprintf("/console/subscriptions/%d", sold.ID), "1,234.81",
		`rel="next"`, "/console/download?of="+url.QueryEscape("/api/user/ledger/?format=csv&account=wallet"))
	if strings.Contains(first.Body, "<b>bold") {
		t.Error("the page has the tags of a reason")
	}
	shows(t, b.page(t, "/console/ledger?p=2"), 200, "1,234.567000001", `rel="prev"`)
	answer := b.visitsPlain(t, "/api/user/ledger/?format=csv&account=wallet")
	if answer.Status != 200 || strings.Count(answer.Body, "\r\n") != 29 {
		t.Errorf("the CSV: %d\n%s", answer.Status, answer.Body)
	}
	shows(t, other.page(t, fmt.Sprintf("/console/ledger?account=quota/%d", sold.ID)), 404, "SUBSCRIPTION_NOT_FOUND")
	shows(t, b.page(t, "/console/ledger?account=%3Cscript%3E"), 400, "INVALID_PARAMETER")
	if wallet := read[self](t, b, "/api/user/self"); !balances[wallet.Balance] {
		t.Errorf("the balance %s is not on the page", wallet.Balance)
	}
}

// visitsPlain follows a link to a file.
func (b *browser) visitsPlain(t testing.TB, path string) gatetest.Answer {
	t.Helper()
	return b.gate.Do(t, "GET", path, b.cookies()+"Sec-Fetch-Site: same-origin", "")
}

func TestTheOrderOfPaymentIsChosenByAForm(t *testing.T) {
	g := start(t)
	b, _ := customer(t, g, "")
	form := hidden(t, b.page(t, "/console/wallet").Body, "preference")
	for _, word := range []string{"wallet_first", "subscription_only", "wallet_only", "subscription_first"} {
		form.Set("preference", word)
		leads(t, b.sends(t, "/console/wallet", form), "/console/wallet?done=preference")
		shows(t, b.page(t, "/console/wallet?done=preference"), 200, `value="`+word+`" checked`, "The order of payment is saved")
		if got := read[self](t, b, "/api/user/self").Preference; got != word {
			t.Errorf("the preference is %s, want %s", got, word)
		}
	}
	form.Set("preference", strings.Repeat("x", 10000))
	shows(t, b.sends(t, "/console/wallet", form), 400, "INVALID_PARAMETER", `value="subscription_first" checked`)
}

// TestThePagesOfTheWalletSpeakChinese walks all pages of the wallet in Chinese, and looks for keys
// that have no message, and for English.
func TestThePagesOfTheWalletSpeakChinese(t *testing.T) {
	g := startGenerating(t, "")
	b, _ := customer(t, g, "50.00")
	var sold bought
	into(t, b.does(t, "POST", pay, `{"plan_id":1,"idempotency_key":"k"}`), &sold)
	b.does(t, "POST", "/api/subscription/free/pay", `{"plan_id":2}`)
	b.does(t, "POST", pay, `{"plan_id":3,"idempotency_key":"l"}`)
	var o order
	into(t, b.does(t, "POST", "/api/user/demo/pay", `{"amount":"5.00"}`), &o)
	b.does(t, "POST", "/api/task/self/", film("runs"))
	id := strconv.FormatInt(sold.ID, 10)
	for _, language := range []string{"en", "zh"} {
		leads(t, b.sends(t, "/console/preferences", url.Values{"do": {"language"}, "value": {language}, "return": {"/console/wallet"}}), "/console/wallet")
		for path, status := range map[string]int{
			"/wallet": 200, "/plans/1": 200, "/plans/2": 200, "/plans/3": 200, "/plans/4": 200, "/plans/9": 404, "/subscriptions": 200, "/subscriptions/" + id: 200,
			"/subscriptions/" + id + "/renew": 200, "/orders": 200, "/orders/" + o.TradeNo: 200, "/ledger": 200, "/ledger?account=quota/" + id: 200, "/ledger?account=receivable": 200,
		} {
			shown := b.page(t, "/console"+path)
			shows(t, shown, status, `<html lang="`+language)
			if missing := regexp.MustCompile(`![\w.]+!`).FindString(shown.Body); missing != "" {
				t.Errorf("%s in %s: there is no message %s", path, language, missing)
			}
			ids := make(map[string]int)
			for _, found := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(shown.Body, -1) {
				ids[found[1]]++
			}
			maps.DeleteFunc(ids, func(_ string, n int) bool { return n == 1 })
			if len(ids) > 0 || strings.Contains(shown.Body, " style=") {
				t.Errorf("%s: the ids %v are used more than once, or there is a style", path, ids)
			}
		}
	}
	shows(t, b.page(t, "/console/wallet"), 200, "钱包", "充值", "先订阅，后钱包", "您已领取过此套餐")
}
