package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

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
	confirmed, target := filled(t, confirm, "buy")
	if target != "/console/plans/1" {
		t.Errorf("the form leads to %q", target)
	}
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
