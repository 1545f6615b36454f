package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// marked is a reason with what HTML must escape. The API takes no invisible characters in reasons.
const marked = `"><script>alert(1)</script> &amp; 😀`

// acts fills the form of a page of the administration and gives the code that it asks for.
func (b *browser) acts(t testing.TB, path, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	return b.verified(t, b.fills(t, path, action, typed), action, typed["reason"])
}

// verified gives the code that an answer to a form asks for, and confirms the form.
func (b *browser) verified(t testing.TB, answer gatetest.Answer, action, reason string) gatetest.Answer {
	t.Helper()
	if answer.Status == 200 && strings.Contains(answer.Body, "Verify that it is you") {
		confirm := b.completes(t, answer, "verify", map[string]string{"code": b.digits(t)})
		shows(t, confirm, 200, "Nothing has been done yet", reason)
		return b.completes(t, confirm, action, nil)
	}
	return answer
}

// reviews fills the form of an action that moves money, gives the code that it asks for, and returns the
// summary.
func (b *browser) reviews(t testing.TB, path, action string, typed map[string]string) gatetest.Answer {
	t.Helper()
	answer := b.fills(t, path, action, typed)
	if answer.Status == 200 && strings.Contains(answer.Body, "Verify that it is you") {
		answer = b.completes(t, answer, "verify", map[string]string{"code": b.digits(t)})
		shows(t, answer, answer.Status, "Nothing has been done yet")
	}
	return answer
}

// events returns the actions of the audit of a user, with their reasons.
func (a *administered) events(t testing.TB) (shown []string) {
	t.Helper()
	for _, e := range a.activity(t) {
		shown = append(shown, e.Action+": "+e.Reason)
	}
	return shown
}

func (a *administered) activity(t testing.TB) []struct{ Action, Reason, Actor string } {
	t.Helper()
	var list struct {
		Items []struct{ Action, Reason, Actor string }
	}
	a.MustAdmin(t, http.MethodGet, "/modelgate/users/"+a.id+"/activity?limit=100", nil, &list)
	return list.Items
}

func TestAnAdministratorChangesAUserByForms(t *testing.T) {
	a := administer(t)
	b, admin := withRole(t, a.Gate, "admin")
	user := "/console/admin/users/" + a.id
	a.browser.enrols(t)
	a.Wait(time.Hour) // the step-up of the enrolment has expired
	for _, c := range []struct {
		part, action string
		typed        map[string]string
		event        string
		then         string // a text of the page of the user afterwards
	}{
		{"disable", "user_disable", nil, "user.disable", "Disabled"},
		{"enable", "user_enable", nil, "user.enable", "Active"},
		{"limits", "user_limits", map[string]string{"budget": "12.50", "reset": "month", "streams": "3"}, "user.limit", "0.00 of 12.50 USD"},
		{"limits", "user_limits", map[string]string{"budget": "", "streams": ""}, "user.limit", "<dd>None</dd>"},
		{"factors", "user_factors", nil, "user.reset_2fa", "<dd>Off</dd>"},
		{"role", "user_role", map[string]string{"role": "finance"}, "user.role", "Finance"},
		{"role", "user_role", map[string]string{"role": "none"}, "user.role", "Active"},
		{"unblock", "user_unblock", nil, "", "Active"},
		{"sign-out", "user_sign_out", nil, "user.sign_out", "The user is not logged in anywhere."},
		{fmt.Sprintf("subscriptions/%d/cancel", a.plan), "plan_cancel", nil, "subscription.cancel", "Cancelled"},
	} {
		reason := "because of " + c.part + " <b>&"
		typed := map[string]string{"reason": ""}
		for name, value := range c.typed {
			typed[name] = value
		}
		before := len(a.activity(t))
		// Without a reason nothing happens, and what was typed stays.
		refused := b.acts(t, user+"/"+c.part, c.action, typed)
		shows(t, refused, 400, `role="alert"`, "<code>MISSING_PARAMETER</code>", `name="reason" type="text" value=""`, "aria-invalid")
		if got := a.activity(t); len(got) != before {
			t.Errorf("%s without a reason: %v", c.action, got[0])
		}
		typed["reason"] = reason
		leads(t, b.acts(t, user+"/"+c.part, c.action, typed), user+"?done="+c.action)
		shows(t, b.page(t, user+"?done="+c.action), 200, c.then, `role="status"`)
		if newest := a.activity(t)[0]; c.event != "" && (newest.Action != c.event || newest.Reason != reason || !strings.HasPrefix(newest.Actor, "usr_")) {
			t.Errorf("%s: the audit has %+v", c.action, newest)
		}
	}
	shows(t, b.page(t, user), 200, "because of role &lt;b&gt;&amp;", ">"+admin+"<", "<bdi>finance</bdi> → <bdi>none</bdi>")
	shown := b.acts(t, user+"/reset-password", "user_reset_code", map[string]string{"reason": "asked on the telephone"})
	code := regexp.MustCompile(`<code id="secret">([^<]+)</code>`).FindStringSubmatch(shown.Body)
	if code == nil || strings.Contains(b.page(t, user).Body, code[1]) {
		t.Fatalf("%d shows no reset code once: %s", shown.Status, shown.Body)
	}
	a.browser.does(t, "POST", "/api/user/password/reset", fmt.Sprintf(`{"code":%q,"password":"another long enough password"}`, code[1]))
}

func TestMoneyIsMovedOnceAfterASummary(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "admin")
	user := "/console/admin/users/" + a.id
	a.Wait(time.Hour)
	before := a.Wallet(t, a.id).Balance
	for _, c := range []struct{ part, action, amount, after string }{
		{"credit", "wallet_credit", "7.50", (before + 7_500_000_000).String()},
		{"debit", "wallet_debit", "2.25", (before + 5_250_000_000).String()},
	} {
		path := user + "/" + c.part
		for amount, text := range map[string]string{"": "above zero", "0": "above zero", "-1": "above zero", "1e3": "above zero", `"><script>`: "above zero"} {
			refused := b.reviews(t, path, c.action+"_review", map[string]string{"amount": amount, "reason": "kept " + marked})
			shows(t, refused, 400, text, "aria-invalid", "kept &#34;&gt;&lt;script&gt;")
		}
		shows(t, b.reviews(t, path, c.action+"_review", map[string]string{"amount": c.amount, "reason": " "}), 400, "Enter a reason. The audit records it.", `value="`+c.amount+`"`)
		typed := map[string]string{"amount": c.amount, "reason": "by test " + marked}
		asked := b.fills(t, path, c.action+"_review", typed)
		if verify := strings.Contains(asked.Body, "Verify that it is you"); verify != (c.action == "wallet_credit") || strings.Contains(asked.Body, "2fa</p>") || strings.Contains(asked.Body, "VERIFICATION_") {
			t.Errorf("the step-up does not come first, or in raw text: %d %s", asked.Status, asked.Body)
		}
		summary := b.reviews(t, path, c.action+"_review", typed)
		shows(t, summary, 200, "Balance now", c.after+" USD</strong>", "by test &#34;&gt;&lt;script&gt;", "even if it is sent twice")
		if got := a.Wallet(t, a.id).Balance; c.action == "wallet_credit" && got != before {
			t.Errorf("the summary has moved money: %s", got)
		}
		form, _ := filled(t, summary, c.action)
		if c.action == "wallet_debit" { // the step-up ends while the summary is read: it comes again, with the balances
			a.Wait(time.Hour)
			asked := b.sends(t, path, form)
			shows(t, asked, 200, "Verify that it is you", "Your last verification has expired.")
			again := b.completes(t, asked, "verify", map[string]string{"code": b.digits(t)})
			shows(t, again, 200, "Nothing has been done yet", "Balance now", c.after+" USD</strong>", "by test &#34;&gt;&lt;script&gt;", "<button>Debit the wallet · 2.25 USD</button>")
			key := form.Get("idempotency_key")
			if form, _ = filled(t, again, c.action); form.Get("idempotency_key") != key {
				t.Error("the summary has another key after the step-up")
			}
		}
		for _, answer := range append(b.sendsAtOnce(t, path, form), b.sends(t, path, form)) {
			leads(t, answer, user+"?done="+c.action)
		}
		if got := a.Wallet(t, a.id).Balance.String(); got != c.after {
			t.Errorf("after %s the balance is %s, want %s", c.action, got, c.after)
		}
		shows(t, b.page(t, user), 200, c.after+" USD")
	}
	// More than there is: the refusal stands on the page with what was typed.
	shows(t, b.reviews(t, user+"/debit", "wallet_debit_review", map[string]string{"amount": "5000", "reason": "too much"}), 402,
		"The wallet has only ", "<code>INSUFFICIENT_FUNDS</code>", `value="5000"`, `value="too much"`, "Available")
	shows(t, b.page(t, user+"/ledger"), 200, "by test &#34;&gt;&lt;script&gt;", "Credit by the operator", "Debit by the operator", "−2.25", "&#43;7.50")

	review, _ := filled(t, b.page(t, user+"/grant"), "plan_grant_review")
	review.Set("plan_id", "1")
	review.Set("reason", "a present")
	summary := b.sends(t, user+"/grant", review)
	shows(t, summary, 200, "Starter", "12.00 USD", "Balance now", "Balance afterwards")
	form, _ := filled(t, summary, "plan_grant")
	for _, answer := range b.sendsAtOnce(t, user+"/grant", form) {
		leads(t, answer, user+"?done=plan_grant")
	}
	shows(t, b.page(t, user), 200, fmt.Sprintf("?account=quota/%d", a.plan+1))
	if strings.Contains(b.page(t, user).Body, fmt.Sprintf("?account=quota/%d", a.plan+2)) {
		t.Error("the plan was granted twice")
	}

	// A refund takes more than the wallet has, and the debt is cleared once.
	form.Set("amount", "20.00")
	leads(t, b.sends(t, user+"/debit", withDo(form, "wallet_debit", "a debit")), user+"?done=wallet_debit")
	body := strings.Replace(paidNotice("evt_1", a.orders[0], "40.00", "USD"), `"type":"paid"`, `"type":"refunded"`, 1)
	body = strings.Replace(body, `"id":"evt_1"`, `"id":"evt_3"`, 1)
	if got := a.Do(t, "POST", hook, signed("evt_3", body, a.Now()), body); got.Status != 200 {
		t.Fatalf("a notice is answered %d %s", got.Status, got.Body)
	}
	wallet := a.Wallet(t, a.id)
	shows(t, b.page(t, user), 200, "The user owes "+wallet.Owed.String()+" USD", user+"/clear")
	summary = b.reviews(t, user+"/clear", "wallet_clear_review", map[string]string{"reason": "settled by telephone"})
	shows(t, summary, 200, ">"+wallet.Owed.String()+" USD<", "Borne by the operator")
	leads(t, b.completes(t, summary, "wallet_clear", nil), user+"?done=wallet_clear")
	if got := a.Wallet(t, a.id); got.Owed != 0 || !strings.Contains(summary.Body, "<strong>"+got.Balance.String()+" USD</strong>") {
		t.Errorf("the wallet is %+v after the summary %s", got, summary.Body)
	}
	a.Verify(t)
}

// withDo returns a form for another action, with an idempotency key of its own.
func withDo(form url.Values, action, key string) url.Values {
	other := maps.Clone(form)
	other.Set("do", action)
	other.Set("idempotency_key", key)
	return other
}

// TestRolesCannotDoMoreByTheirForms sends each form of an administrator as another role would that
// knows its address, and checks that nothing changes.
func TestRolesCannotDoMoreByTheirForms(t *testing.T) {
	a := administer(t)
	user := "/console/admin/users/" + a.id
	admin, _ := withRole(t, a.Gate, "admin")
	_, other := withRole(t, a.Gate, "support")
	var mismatches struct{ Items []struct{ ID string } }
	a.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &mismatches)
	forms := map[string]map[string]string{ // by page and action
		user + "/disable user_disable": {}, user + "/limits user_limits": {"budget": "1"}, user + "/role user_role": {"role": "admin"}, user + "/reset-password user_reset_code": {},
		user + "/credit wallet_credit": {"amount": "5"}, user + "/debit wallet_debit": {"amount": "5"}, user + "/grant plan_grant": {"plan_id": "1", "user": a.id},
		user + "/subscriptions/1/cancel plan_cancel": {}, "/console/admin/backends backend_drain": {"backend": "secret-works"}, "/console/admin/verify verify_run": {},
		"/console/admin/tasks/" + a.task + " task_stop": {}, "/console/admin/tasks/" + a.task + " task_retry": {},
		user + "/sign-out user_sign_out": {}, user + "/factors user_factors": {}, user + "/callbacks callback_resend": {"task": a.task},
		"/console/admin/mismatches mismatch_resolve": {"id": mismatches.Items[0].ID}, "/console/admin/orders/" + a.orders[0] + " mismatch_resolve": {"id": mismatches.Items[0].ID},
	}
	may := map[string][]string{"support": {"user_sign_out", "user_factors", "callback_resend"}, "finance": {"mismatch_resolve"}, "": nil}
	before, wallet := a.events(t), a.Wallet(t, a.id)
	for role, allowed := range may {
		b := a.browser
		if role != "" {
			b, _ = withRole(t, a.Gate, role)
		}
		for at, typed := range forms {
			path, action, _ := strings.Cut(at, " ")
			if slices.Contains(allowed, action) {
				continue
			}
			form := taskForm(action, "", "", "reason", "I like to")
			for name, value := range typed {
				form.Set(name, value)
			}
			if answer := b.sends(t, path, form); answer.Status != 403 || !strings.Contains(answer.Body, "<code>FORBIDDEN</code>") {
				t.Errorf("%q sends %s: %d\n%s", role, at, answer.Status, answer.Body)
			}
		}
	}
	if after := a.events(t); !slices.Equal(before, after) || a.Wallet(t, a.id) != wallet {
		t.Errorf("the events are %q, and the wallet is %+v", after, a.Wallet(t, a.id))
	}
	// Users cannot act on their own account, and support cannot act on users with a role.
	self := read[struct{ ID string }](t, admin, "/api/user/self").ID
	if strings.Contains(admin.page(t, "/console/admin/users/"+self).Body, "/role") {
		t.Error("an administrator is led to a change of their own role")
	}
	shows(t, admin.page(t, "/console/admin/users/"+self), 200, "You cannot act on it here")
	for _, part := range []string{"/role", "/credit"} {
		shows(t, admin.page(t, "/console/admin/users/"+self+part), 403, "<code>FORBIDDEN</code>", "You cannot act on it here")
	}
	as := url.Values{"do": {"user_role"}, "as": {self}, "role": {"none"}, "reason": {"tired"}}
	shows(t, admin.verified(t, admin.sends(t, "/console/admin/users/"+self+"/role", as), "user_role", "tired"), 403, "<code>FORBIDDEN</code>")
	support, _ := withRole(t, a.Gate, "support")
	a.Wait(time.Hour)
	shows(t, support.page(t, "/console/admin/users/"+other+"/sign-out"), 403, "Only an administrator can act on this account.")
	answer := support.sends(t, "/console/admin/users/"+other+"/sign-out", url.Values{"do": {"user_sign_out"}, "reason": {"to annoy"}})
	shows(t, support.verified(t, answer, "user_sign_out", "to annoy"), 403, "<code>FORBIDDEN</code>")
}

// TestChargedTwiceIsAnsweredByThePages is the way of the support handbook: from what the user says
// to the explanation, by links and forms alone; then finance closes the case.
func TestChargedTwiceIsAnsweredByThePages(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "support")
	follow := func(answer gatetest.Answer, pattern string) gatetest.Answer {
		t.Helper()
		found := regexp.MustCompile(`href="(/console/admin[^"]*` + pattern + `)"`).FindStringSubmatch(answer.Body)
		if found == nil {
			t.Fatalf("there is no link to %s:\n%s", pattern, answer.Body)
		}
		return b.page(t, unescape.Replace(found[1]))
	}
	// Two calls: each has its own id, its cost and what paid for it.
	leads(t, b.seeks(t, a.customer.ids[1]), "/console/admin/calls/"+a.customer.ids[1])
	call := b.page(t, "/console/admin/calls/"+a.customer.ids[1])
	shows(t, call, 200, "0.100351 USD", "The answer is complete.", "Input read from the cache", "Paid from", ">Wallet<", a.Backend.Address)
	user := follow(call, "/users/"+a.id)
	calls := follow(user, "/calls\\?user="+a.id)
	shows(t, calls, 200, a.customer.ids[1], a.customer.ids[4])
	// A task: its hold and its charge name it in the ledger.
	ledger := follow(user, "/ledger")
	shows(t, ledger, 200, "Top-up", "Plan bought", a.customer.ids[0])
	quota := follow(ledger, fmt.Sprintf("account=quota/%d", a.plan))
	shows(t, quota, 200, "Set aside for a task", "&#43;12.00")
	shows(t, follow(quota, "/tasks/"+a.task), 200, a.task, "0.05")
	// A payment: the order was paid twice, and credited once.
	order := follow(follow(user, "/orders\\?user="+a.id), "/orders/"+a.orders[0])
	shows(t, order, 200, "40.00 USD", "pay_evt_1", "Transfers in the ledger: 1", "the order was paid by another payment, pay_evt_1", "pay_evt_2", "refund the other payment at the service", "&#43;40.00")
	if strings.Contains(order.Body, `value="mismatch_resolve"`) {
		t.Error("support is shown the form of finance")
	}
	finance, resolver := withRole(t, a.Gate, "finance")
	path := "/console/admin/orders/" + a.orders[0]
	shows(t, finance.page(t, "/console/admin"), 200, "pay_evt_2", `<p class="figure bad">1</p>`)
	shows(t, finance.acts(t, path, "mismatch_resolve", map[string]string{"reason": ""}), 400, "<code>MISSING_PARAMETER</code>", "<details open>")
	leads(t, finance.acts(t, path, "mismatch_resolve", map[string]string{"reason": "refunded at the service <i>"}), path+"?done=mismatch_resolved")
	shows(t, finance.page(t, path), 200, "Resolved", "<bdi>"+resolver+"</bdi></a>: <bdi>refunded at the service &lt;i&gt;")
	shows(t, finance.page(t, "/console/admin/mismatches"), 200, "No mismatches match.")
	shows(t, finance.page(t, "/console/admin/mismatches?status=resolved&user="+a.customer.name), 200, "refunded at the service &lt;i&gt;")
	a.Verify(t)
}

func TestBackendsTasksAndTheStoreAreOperatedByForms(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "admin")
	shows(t, b.page(t, "/console/admin/backends"), 200, "secret-works", "Available")
	shows(t, b.acts(t, "/console/admin/backends", "backend_drain", map[string]string{"reason": ""}), 400, "<details open>", "<code>MISSING_PARAMETER</code>")
	leads(t, b.acts(t, "/console/admin/backends", "backend_drain", map[string]string{"reason": "maintenance"}), "/console/admin/backends?done=backend_drained")
	shows(t, b.page(t, "/console/admin"), 200, "1 of 1 not available")
	leads(t, b.acts(t, "/console/admin/backends", "backend_enable", map[string]string{"reason": "it is back"}), "/console/admin/backends?done=backend_enabled")
	shows(t, b.acts(t, "/console/admin/backends", "backend_check", map[string]string{"reason": "is it there"}), 200, "<bdi>secret-works</bdi>: ", " ms")
	leads(t, b.acts(t, "/console/admin/verify", "verify_run", map[string]string{"reason": "the end of the month"}), "/console/admin/verify?done=verified")
	shows(t, b.page(t, "/console/admin/verify"), 200, "Everything adds up", "Transfers")
	shows(t, b.page(t, "/console/admin"), 200, "Everything adds up")
	task := "/console/admin/tasks/" + a.task
	leads(t, b.acts(t, task, "task_stop", map[string]string{"reason": "asked by the user"}), task+"?done=task_cancelled")
	gatetest.Eventually(t, "the task has ended", func() (string, bool) {
		body := b.page(t, task).Body
		return body, strings.Contains(body, "Nothing was charged")
	})
}
