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
