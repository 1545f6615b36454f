package console_test

import (
	"encoding/csv"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPagesSayWhoMayDoWhatTheyDoNotOffer reads what a role is told about the actions of others.
func TestPagesSayWhoMayDoWhatTheyDoNotOffer(t *testing.T) {
	a := administer(t)
	support, _ := withRole(t, a.Gate, "support")
	finance, _ := withRole(t, a.Gate, "finance")
	admin, _ := withRole(t, a.Gate, "admin")
	user := "/console/admin/users/" + a.id
	only := "Only for the role Administrator:"
	shows(t, support.page(t, user), 200, only, "Disable the user", "Credit the wallet", "Cancel the subscription")
	shows(t, finance.page(t, user), 200, only, "Only for the role Administrator, Support:", "Log the user out")
	shows(t, support.page(t, "/console/admin/backends"), 200, only, "Check, Drain, Enable.")
	shows(t, support.page(t, "/console/admin/verify"), 200, only, "Verify now.")
	shows(t, support.page(t, "/console/admin/tasks/"+a.task), 200, only, "Try again, Cancel the task.")
	shows(t, support.page(t, "/console/admin/orders/"+a.orders[0]), 200, "Only for the role Administrator, Finance:", "Mark as resolved.")
	for _, path := range []string{user, "/console/admin/backends", "/console/admin/verify", "/console/admin/tasks/" + a.task} {
		hides(t, admin.page(t, path), "Only for the role")
	}
	// A refusal names the role that is needed, and that of the user.
	shows(t, support.page(t, user+"/credit"), 403, "This page needs the role Administrator. Your role is Support.")
	shows(t, finance.page(t, "/console/admin/tasks"), 403, "This page needs the role Administrator, Support. Your role is Finance.")
	shows(t, finance.seeks(t, a.task), 403, "needs the role Administrator, Support. Your role is Finance.")
	shows(t, support.sends(t, "/console/admin/backends", taskForm("backend_drain", "", "", "backend", "secret-works", "reason", "x")), 403, "This needs the role Administrator. Your role is Support.")
	answer, _ := support.ask(t, "POST", "/api/admin/wallets/"+a.id+"/credit", `{"amount":"1","reason":"x"}`)
	if answer.Status != 403 || !strings.Contains(answer.Body, "this needs a role: admin; your account has: support") {
		t.Errorf("the route answers %d %s", answer.Status, answer.Body)
	}
}

// TestFormsSaySpecificallyWhatIsWrong reads hints and refusals of forms.
func TestFormsSaySpecificallyWhatIsWrong(t *testing.T) {
	a := administer(t)
	admin, _ := withRole(t, a.Gate, "admin")
	admin.verifies(t)
	user := "/console/admin/users/" + a.id
	shows(t, admin.page(t, user+"/credit"), 200, "the user sees it in the ledger.")
	for _, part := range []string{"/disable", "/limits", "/sign-out"} {
		hides(t, admin.page(t, user+part), "sees it in the ledger")
	}
	refused := admin.acts(t, user+"/disable", "user_disable", map[string]string{"reason": ""})
	shows(t, refused, 400, "<p>“Reason” is required.</p>")
	shows(t, admin.page(t, "/console/admin/calls?from=2026-02-02&to=2026-01-01"), 400, "<p>“to” must lie after “from”</p>")
	for _, path := range []string{"/console/admin/calls?status=abc", "/console/admin/calls/none", "/console/admin/usage?group=x"} {
		hides(t, admin.page(t, path), "`")
	}
	// A case number that was used for something else: the moment in words, and a link to the transfer.
	first := map[string]string{"amount": "7.50", "reason": "one", "case": "T-1"}
	leads(t, admin.completes(t, admin.reviews(t, user+"/credit", "wallet_credit_review", first), "wallet_credit", nil), user+"?done=wallet_credit")
	first["amount"] = "8.00"
	reused := admin.completes(t, admin.reviews(t, user+"/credit", "wallet_credit_review", first), "wallet_credit", nil)
	shows(t, reused, 422, time.Now().UTC().Format(time.DateOnly)+" ", " UTC for a change of 7.50")
	link := regexp.MustCompile(`href="(/console/admin/transfers/[0-9a-f]{32})">Open the transfer`).FindStringSubmatch(reused.Body)
	if link == nil || regexp.MustCompile(`\dT\d\d:\d\d:\d\dZ`).MatchString(reused.Body[strings.Index(reused.Body, `role="alert"`):][:400]) {
		t.Fatalf("the refusal is %s", reused.Body)
	}
	shows(t, admin.page(t, link[1]), 200, "Credit by the operator", "7.50", "one")
}

// TestPagesOfPaymentsAreInWords reads the small things that finance and support look at.
func TestPagesOfPaymentsAreInWords(t *testing.T) {
	a := administer(t)
	support, _ := withRole(t, a.Gate, "support")
	user := support.page(t, "/console/admin/users/"+a.id)
	_, unsettled, _ := strings.Cut(user.Body, `id="unsettled"`)
	unsettled, _, _ = strings.Cut(unsettled, "</table>")
	if !strings.Contains(unsettled, ">"+a.customer.name+"<") || strings.Contains(unsettled, ">"+a.id+"<") {
		t.Errorf("the payments that are not settled are of %s", unsettled)
	}
	order := support.page(t, "/console/admin/orders/"+a.orders[0])
	if n := strings.Count(order.Body, "<code>pay_evt_1</code>"); n != 1 {
		t.Errorf("the page has the id of the payment %d times", n)
	}
	// A task of the pages has no receiver of callbacks.
	cancelled := a.browser.submitsByPage(t, "image", "done")
	a.browser.untilShown(t, cancelled, "success")
	hides(t, support.page(t, "/console/admin/tasks/"+cancelled), "Send the callback again")
	month := time.Now().UTC().Format("2006-01")
	shows(t, support.page(t, "/console/admin/receipts"), 200, `/console/admin/receipts?from=`+month+`-01&amp;to=`+month, ">This month<", ">Last month<")
	shows(t, support.page(t, "/console/admin/receipts?from="+month+"-01"), 200, "<strong>40.00 USD</strong>")
	// Each column of a file is explained beside its link.
	for path, file := range map[string]string{"orders": "orders?", "receipts": "payments?group=day&group=provider&", "usage": "usage?group=key&", "receipts?": "sales?group=day&"} {
		lines, err := csv.NewReader(strings.NewReader(support.visitsPlain(t, "/api/admin/"+file+"format=csv").Body)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		page := support.page(t, "/console/admin/"+path)
		for _, column := range lines[0] {
			if !regexp.MustCompile(`<dt><code>` + column + `</code></dt><dd>[^<]+</dd>`).MatchString(page.Body) {
				t.Errorf("%s does not explain the column %s", path, column)
			}
		}
	}
}

// TestAResetCodeNamesThePageOfTheConsole issues a code for a new password.
func TestAResetCodeNamesThePageOfTheConsole(t *testing.T) {
	g := start(t)
	b := newBrowser(g)
	name := b.registers(t)
	var issued struct{ Code, Page string }
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+name+"/reset-password", nil, &issued)
	if !strings.HasSuffix(issued.Page, "/console/reset") {
		t.Errorf("the page is %q", issued.Page)
	}
}
