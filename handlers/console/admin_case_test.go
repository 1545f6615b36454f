package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestOneCaseChangesTheBalanceOnce lets two administrators and the operator answer one case.
func TestOneCaseChangesTheBalanceOnce(t *testing.T) {
	a := administer(t)
	first, _ := withRole(t, a.Gate, "admin")
	second, _ := withRole(t, a.Gate, "admin")
	first.verifies(t)
	second.verifies(t)
	user := "/console/admin/users/" + a.id
	before := a.Wallet(t, a.id).Balance
	credited := (before + 7_500_000_000).String()

	review := map[string]string{"amount": "7.50", "reason": "the first colleague", "case": "T-4711"}
	summary := first.reviews(t, user+"/credit", "wallet_credit_review", review)
	shows(t, summary, 200, "<bdi>T-4711</bdi>")
	leads(t, first.completes(t, summary, "wallet_credit", nil), user+"?done=wallet_credit")
	review["reason"], review["case"] = "another one, in other words", " T-4711 "
	leads(t, second.completes(t, second.reviews(t, user+"/credit", "wallet_credit_review", review), "wallet_credit", nil), user+"?done=case_replayed")
	shows(t, second.page(t, user+"?done=case_replayed"), 200, "Nothing was changed now")
	// The routes take the number as the idempotency key.
	var done struct {
		Replayed bool
		Order    string
	}
	into(t, second.does(t, "POST", "/api/admin/wallets/"+a.id+"/credit", `{"amount":"7.50","reason":"a program","idempotency_key":"T-4711"}`), &done)
	if transfer := done.Order; !done.Replayed || transfer == "" {
		t.Errorf("the route answers %+v", done)
	} else if a.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+a.id+"/credit", map[string]any{"amount": "7.50", "reason": "the operator", "idempotency_key": "T-4711"}, &done); !done.Replayed || done.Order != transfer {
		t.Errorf("the operator gets %+v", done)
	}
	review["case"] = "T-4711"
	// Another amount or a debit is refused, and the refusal names what was done.
	for part, amount := range map[string]string{"credit": "8.00", "debit": "7.50"} {
		review["amount"] = amount
		summary := second.reviews(t, user+"/"+part, "wallet_"+part+"_review", review)
		shows(t, second.completes(t, summary, "wallet_"+part, nil), 422, "IDEMPOTENCY_KEY_REUSED", done.Order, "a change of 7.50", `name="case" type="text" value="T-4711"`, "aria-invalid", `value="`+amount+`"`)
		second.refused(t, "POST", "/api/admin/wallets/"+a.id+"/"+part, fmt.Sprintf(`{"amount":%q,"reason":"x","idempotency_key":"T-4711"}`, amount), 422, "IDEMPOTENCY_KEY_REUSED")
	}
	second.jar["modelgate_language"] = "zh"
	review["amount"] = "9.00"
	shows(t, second.completes(t, second.reviews(t, user+"/credit", "wallet_credit_review", review), "wallet_credit", nil), 422, "工单号", done.Order, "7.50")
	review["case"] = "工单"
	shows(t, second.reviews(t, user+"/credit", "wallet_credit_review", review), 400, "请输入由英文字母", "aria-invalid")
	second.jar["modelgate_language"] = "en"
	if got := a.Wallet(t, a.id).Balance.String(); got != credited {
		t.Errorf("the balance is %s, want %s", got, credited)
	}
	// The number belongs to one user: another user may have the same. A form with another number and
	// one without any change the balance again.
	other := newBrowser(a.Gate)
	name := other.registers(t)
	for _, at := range []string{"/console/admin/users/" + name, user} {
		for _, number := range []string{"T-4711", "T-4712", ""} {
			if at == user && number == "T-4711" {
				continue
			}
			typed := map[string]string{"amount": "1.00", "reason": "again", "case": number}
			first.verifies(t)
			leads(t, first.completes(t, first.reviews(t, at+"/credit", "wallet_credit_review", typed), "wallet_credit", nil), at+"?done=wallet_credit")
		}
	}
	if got, want := a.Wallet(t, a.id).Balance, before+9_500_000_000; got != want {
		t.Errorf("the balance is %s, want %s", got, want)
	}
	a.Verify(t)
}

// TestUsersSeeOnlyTheReasonsOfTransfers makes the changes of administrators, with and without money, and
// reads what the user sees.
func TestUsersSeeOnlyTheReasonsOfTransfers(t *testing.T) {
	a := administer(t)
	admin := newHolder(t, a.Gate, "admin")
	admin.verifies(t)
	for i, path := range []string{"wallets/{user}/credit", "wallets/{user}/debit", "subscriptions", "users/{user}/limits", "users/{user}/unblock", fmt.Sprintf("subscriptions/%d/cancel", a.plan), "tasks/" + a.task + "/retry"} {
		more := map[int]string{0: `,"amount":"2.00"`, 1: `,"amount":"1.00"`, 2: fmt.Sprintf(`,"user":%q,"plan_id":1`, a.id), 3: `,"streams":3`}[i]
		admin.administers(t, "POST", strings.Replace(path, "{user}", a.id, 1), fmt.Sprintf(`{"reason":"because-%d"%s}`, i, more))
	}
	var mismatches struct{ Items []struct{ ID string } }
	a.MustAdmin(t, http.MethodGet, "/modelgate/mismatches", nil, &mismatches)
	admin.administers(t, "POST", "mismatches/"+mismatches.Items[0].ID+"/resolve", `{"reason":"because-7"}`)

	activity := string(a.browser.does(t, "GET", "/api/user/activity/?page_size=100", "")) + a.browser.page(t, "/console/activity").Body
	if strings.Contains(activity, "because") || !strings.Contains(activity, "wallet.credit") {
		t.Errorf("the activity of the user is %s", activity)
	}
	ledger := string(a.browser.does(t, "GET", "/api/user/ledger/?page_size=100", "")) + a.browser.page(t, "/console/ledger").Body
	quota := string(a.browser.does(t, "GET", fmt.Sprintf("/api/user/ledger/?account=quota/%d", a.plan+1), ""))
	for i, in := range []string{ledger, ledger, quota} {
		if !strings.Contains(in, fmt.Sprintf("because-%d", i)) {
			t.Errorf("the ledger of the user has no reason %d: %s", i, in)
		}
	}
	for i := 3; i < 8; i++ {
		if strings.Contains(ledger+quota, fmt.Sprintf("because-%d", i)) {
			t.Errorf("the ledger of the user has the reason %d", i)
		}
	}
	// The administration has all of them.
	var events struct{ Items []adminEvent }
	into(t, admin.administers(t, "GET", "users/"+a.id+"/activity?limit=100", ""), &events)
	reasons := map[string]bool{}
	for _, e := range events.Items {
		if reasons[e.Reason] = true; strings.Contains(e.Detail, "because") {
			t.Errorf("the detail repeats the reason: %+v", e)
		}
	}
	for i := range 8 {
		if i != 6 && !reasons[fmt.Sprintf("because-%d", i)] { // a retry is an event of the task
			t.Errorf("the audit has no reason %d: %v", i, reasons)
		}
	}
}
