package console_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// bought is the answer to a purchase.
type bought struct {
	ID         int64  `json:"subscription_id"`
	PlanID     int64  `json:"plan_id"`
	Status     string `json:"status"`
	QuotaTotal string `json:"quota_total"`
	QuotaUsed  string `json:"quota_used"`
	Start      int64  `json:"start_time"`
	End        int64  `json:"end_time"`
	Order      string `json:"order"`
	Wallet     struct {
		Balance string `json:"balance"`
		Charged string `json:"charged"`
	} `json:"wallet"`
	Replayed bool `json:"replayed"`
}

type self struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	Currency   string `json:"currency"`
	Balance    string `json:"balance"`
	Held       string `json:"held"`
	Owed       string `json:"owed"`
	Preference string `json:"preference"`
}

func (a account) balance(t testing.TB) string {
	t.Helper()
	return get[self](t, a, "/api/user/self").Balance
}

const pay = "/api/subscription/wallet/pay"

func TestPlansOnSaleAreListed(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	_, e := a.ask(t, "GET", "/api/subscription/plans/", "")
	want := `{"items":[` +
		`{"plan_id":1,"title":"Starter","price":"9.90","quota":"12.00","duration":{"count":1,"unit":"month"},"quota_reset":"never","currency":"USD","enabled":true},` +
		`{"plan_id":2,"title":"Trial","price":"0.00","quota":"1.00","duration":{"count":7,"unit":"day"},"quota_reset":"never","currency":"USD","enabled":true},` +
		`{"plan_id":3,"title":"Once","price":"1.00","quota":"1.00","duration":{"count":1,"unit":"day"},"quota_reset":"never","purchase_limit":1,"currency":"USD","enabled":true}` +
		`],"total":3,"page":1,"page_size":20}`
	if string(e.Data) != want {
		t.Errorf("the list is\n%s\nwant\n%s", e.Data, want)
	}
	type plan struct {
		ID int64 `json:"plan_id"`
	}
	second := get[page[plan]](t, a, "/api/subscription/plans?p=2&page_size=2")
	if len(second.Items) != 1 || second.Items[0].ID != 3 || second.Total != 3 || second.Page != 2 || second.PageSize != 2 {
		t.Errorf("the second page is %+v", second)
	}
	if beyond := get[page[plan]](t, a, "/api/subscription/plans?p=9"); beyond.Items == nil || len(beyond.Items) != 0 || beyond.Total != 3 {
		t.Errorf("beyond the last page is %+v", beyond)
	}
}

func TestAPlanIsBoughtAndRenewedFromTheWallet(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	if got, e := a.ask(t, "POST", pay, `{"plan_id":1,"idempotency_key":"first"}`); got.Status != 402 || e.Code != "INSUFFICIENT_BALANCE" {
		t.Errorf("without money: %d %s", got.Status, got.Body)
	}
	g.Credit(t, a.name, "25.00")

	// The refused request has not used up the idempotency key.
	first := post[bought](t, a, pay, `{"plan_id":1,"idempotency_key":"first"}`)
	if first.ID < 1 || first.PlanID != 1 || first.Status != "active" || first.QuotaTotal != "12.00" || first.QuotaUsed != "0.00" ||
		first.Wallet.Charged != "9.90" || first.Wallet.Balance != "15.10" || first.Order == "" || first.Replayed {
		t.Errorf("bought %+v", first)
	}
	answer, e := a.ask(t, "POST", pay, `{"plan_id":1,"idempotency_key":"first"}`)
	again := data[bought](t, answer, e)
	if !again.Replayed || answer.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("asked again: %+v, %v", again, answer.Header)
	}
	if again.Replayed = false; again != first {
		t.Errorf("asked again it is %+v, was %+v", again, first)
	}

	renewed := post[bought](t, a, "/api/subscription/wallet/renew", fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"more"}`, first.ID))
	if renewed.ID != first.ID || renewed.End <= first.End || renewed.QuotaTotal != "24.00" || renewed.Wallet.Balance != "5.20" {
		t.Errorf("renewed %+v", renewed)
	}
	if own := get[page[bought]](t, a, "/api/subscription/self"); own.Total != 1 || own.Items[0].End != renewed.End || own.Items[0].QuotaTotal != "24.00" {
		t.Errorf("the subscriptions are %+v", own)
	}
	if balance := a.balance(t); balance != "5.20" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestPurchasesThatAreRefusedCostNothing(t *testing.T) {
	g := start(t)
	a, other := newAccount(t, g), newAccount(t, g)
	g.Credit(t, a.name, "50.00")
	mine := post[bought](t, a, pay, `{"plan_id":1,"idempotency_key":"mine"}`)
	post[bought](t, a, pay, `{"plan_id":3,"idempotency_key":"limited"}`)
	free := post[bought](t, other, "/api/subscription/free/pay", `{"plan_id":2}`)
	before := a.balance(t)
	const renew, claim = "/api/subscription/wallet/renew", "/api/subscription/free/pay"
	for name, c := range map[string]struct {
		who        account
		path, body string
		status     int
		code       string
	}{
		"no key":                        {a, pay, `{"plan_id":1}`, 400, "MISSING_PARAMETER"},
		"an empty key":                  {a, pay, `{"plan_id":1,"idempotency_key":""}`, 400, "MISSING_PARAMETER"},
		"a long key":                    {a, pay, `{"plan_id":1,"idempotency_key":"` + strings.Repeat("k", 256) + `"}`, 400, "INVALID_PARAMETER"},
		"a key with a line break":       {a, pay, `{"plan_id":1,"idempotency_key":"a\nb"}`, 400, "INVALID_PARAMETER"},
		"plan zero":                     {a, pay, `{"plan_id":0,"idempotency_key":"x"}`, 400, "INVALID_PARAMETER"},
		"no such plan":                  {a, pay, `{"plan_id":99,"idempotency_key":"x"}`, 404, "PLAN_NOT_FOUND"},
		"a plan that is off sale":       {a, pay, `{"plan_id":4,"idempotency_key":"x"}`, 409, "PLAN_DISABLED"},
		"a free plan":                   {a, pay, `{"plan_id":2,"idempotency_key":"x"}`, 409, "PLAN_FREE"},
		"more often than allowed":       {a, pay, `{"plan_id":3,"idempotency_key":"x"}`, 409, "PURCHASE_LIMIT_REACHED"},
		"the key of another plan":       {a, pay, `{"plan_id":3,"idempotency_key":"mine"}`, 422, "IDEMPOTENCY_KEY_REUSED"},
		"the key of a purchase":         {a, renew, fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"mine"}`, mine.ID), 422, "IDEMPOTENCY_KEY_REUSED"},
		"claiming what costs":           {a, claim, `{"plan_id":1}`, 409, "PLAN_NOT_FREE"},
		"claiming twice":                {other, claim, `{"plan_id":2}`, 409, "ALREADY_CLAIMED"},
		"claiming with a key":           {a, claim, `{"plan_id":2,"idempotency_key":"x"}`, 400, "INVALID_PARAMETER"},
		"renewing without a number":     {a, renew, `{"idempotency_key":"x"}`, 400, "MISSING_PARAMETER"},
		"renewing what is not there":    {a, renew, `{"subscription_id":999,"idempotency_key":"x"}`, 404, "SUBSCRIPTION_NOT_FOUND"},
		"renewing another user's":       {other, renew, fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"x"}`, mine.ID), 404, "SUBSCRIPTION_NOT_FOUND"},
		"renewing what is free":         {other, renew, fmt.Sprintf(`{"subscription_id":%d,"idempotency_key":"x"}`, free.ID), 409, "PLAN_FREE"},
		"renewing without enough money": {other, pay, `{"plan_id":1,"idempotency_key":"x"}`, 402, "INSUFFICIENT_BALANCE"},
	} {
		got, e := c.who.ask(t, "POST", c.path, c.body)
		if got.Status != c.status || e.Code != c.code || e.Message == "" {
			t.Errorf("%s: answered %d %s, want %d %s", name, got.Status, got.Body, c.status, c.code)
		}
	}
	if after := a.balance(t); after != before {
		t.Errorf("the balance is %s, was %s", after, before)
	}
	g.Verify(t)
}

// inParallel sends a request many times at once and returns the answers.
func inParallel(n int, send func(i int) gatetest.Answer) []gatetest.Answer {
	answers := make([]gatetest.Answer, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { answers[i] = send(i) })
	}
	all.Wait()
	return answers
}

func TestTwoHundredPurchasesWithOneKeyAreOnePurchase(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	g.Credit(t, a.name, "100.00")
	answers := inParallel(200, func(int) gatetest.Answer {
		return g.Do(t, "POST", pay, a.auth+"\nContent-Type: application/json", `{"plan_id":1,"idempotency_key":"once"}`)
	})
	fresh := 0
	var first *bought
	for _, answer := range answers {
		_, e := open(t, answer)
		got := data[bought](t, answer, e)
		if !got.Replayed {
			fresh++
		}
		if got.Replayed != (answer.Header.Get("Idempotent-Replayed") == "true") {
			t.Error("the header and the answer contradict each other")
		}
		got.Replayed = false
		if first == nil {
			first = &got
		}
		if got != *first {
			t.Errorf("two answers: %+v and %+v", got, *first)
		}
	}
	if fresh != 1 {
		t.Errorf("%d of the answers are no replay", fresh)
	}
	if balance := a.balance(t); balance != "90.10" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestOfTwoHundredPurchasesAsManySucceedAsThereIsMoneyFor(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	g.Credit(t, a.name, "35.00") // enough for three
	answers := inParallel(200, func(i int) gatetest.Answer {
		return g.Do(t, "POST", pay, a.auth+"\nContent-Type: application/json", fmt.Sprintf(`{"plan_id":1,"idempotency_key":"k%d"}`, i))
	})
	succeeded := 0
	for _, answer := range answers {
		_, e := open(t, answer)
		switch {
		case answer.Status == http.StatusOK:
			succeeded++
		case e.Code != "INSUFFICIENT_BALANCE":
			t.Errorf("answered %d %s", answer.Status, answer.Body)
		}
	}
	if own := get[page[bought]](t, a, "/api/subscription/self"); succeeded != 3 || own.Total != 3 {
		t.Errorf("%d purchases, %d subscriptions, want 3", succeeded, own.Total)
	}
	if balance := a.balance(t); balance != "5.30" {
		t.Errorf("the balance is %s", balance)
	}
	g.Verify(t)
}

func TestTheOrderOfPaymentIsTheUsers(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	if got := get[self](t, a, "/api/user/self"); got.Preference != "subscription_first" || got.Name != a.name || got.Currency != "USD" ||
		got.Balance != "0.00" || got.Held != "0.00" || got.Owed != "0.00" || !strings.HasPrefix(got.ID, "usr_") {
		t.Errorf("a new account is %+v", got)
	}
	const path = "/api/subscription/self/preference"
	for _, word := range []string{"wallet_first", "subscription_only", "wallet_only", "subscription_first"} {
		answer, e := a.ask(t, "PUT", path, `{"preference":"`+word+`"}`)
		if string(e.Data) != `{"preference":"`+word+`"}` {
			t.Errorf("%s is answered %d %s", word, answer.Status, answer.Body)
		}
		if got := get[self](t, a, "/api/user/self").Preference; got != word {
			t.Errorf("the preference is %s, want %s", got, word)
		}
	}
	for body, code := range map[string]string{`{}`: "MISSING_PARAMETER", `{"preference":"both"}`: "INVALID_PARAMETER", `{"preference":1}`: "INVALID_PARAMETER"} {
		if got, e := a.ask(t, "PUT", path, body); got.Status != 400 || e.Code != code {
			t.Errorf("%s is answered %d %s", body, got.Status, got.Body)
		}
	}
}

func TestAReceiptHasTheDocumentedFields(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	g.Credit(t, a.name, "10.00")
	for path, body := range map[string]string{pay: `{"plan_id":1,"idempotency_key":"k"}`, "/api/subscription/free/pay": `{"plan_id":2}`} {
		_, e := a.ask(t, "POST", path, body)
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(e.Data, &fields); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"subscription_id", "plan_id", "status", "quota_total", "quota_used", "start_time", "end_time", "order", "wallet", "replayed"} {
			if fields[name] == nil {
				t.Errorf("%s: %s is not in %s", path, name, e.Data)
			}
		}
	}
}

func TestAPlanAndASubscriptionAreShownAlone(t *testing.T) {
	g := start(t)
	a, other := newAccount(t, g), newAccount(t, g)
	g.Credit(t, a.name, "20.00")
	const plans = "/api/subscription/plans/"
	_, e := a.ask(t, "GET", plans+"4", "")
	if want := `{"plan_id":4,"title":"Old","price":"1.00","quota":"1.00","duration":{"count":1,"unit":"day"},"quota_reset":"never","currency":"USD","enabled":false,"refusal":"PLAN_DISABLED"}`; string(e.Data) != want {
		t.Errorf("the plan is %s, want %s", e.Data, want)
	}
	for _, id := range []string{"0", "99", "x", "-1"} {
		answer, _ := a.ask(t, "GET", plans+id, "")
		refused(t, id, answer, 404, "PLAN_NOT_FOUND")
	}
	sold := post[bought](t, a, pay, `{"plan_id":3,"idempotency_key":"k"}`)
	post[bought](t, a, "/api/subscription/free/pay", `{"plan_id":2}`)
	type offer struct {
		ID      int64  `json:"plan_id"`
		Price   string `json:"price"`
		Refusal string `json:"refusal"`
	}
	var refusals []string
	for _, plan := range get[page[offer]](t, a, plans).Items {
		refusals = append(refusals, plan.Refusal)
	}
	if got := strings.Join(refusals, ","); got != ",ALREADY_CLAIMED,PURCHASE_LIMIT_REACHED" {
		t.Errorf("the refusals are %s", got)
	}
	path := fmt.Sprintf("/api/subscription/self/%d", sold.ID)
	shown := get[struct {
		bought
		Plan offer
	}](t, a, path)
	if shown.ID != sold.ID || shown.End != sold.End || shown.Plan != (offer{3, "1.00", ""}) {
		t.Errorf("the subscription is %+v", shown)
	}
	theirs, _ := other.ask(t, "GET", path, "")
	refused(t, "another user's", theirs, 404, "SUBSCRIPTION_NOT_FOUND")
	quota := get[page[line]](t, a, fmt.Sprintf("/api/user/ledger/?account=quota/%d", sold.ID))
	if quota.Total != 1 || quota.Items[0].Balance.String() != "1.00" {
		t.Errorf("the lines of the quota are %+v", quota)
	}
	theirs, _ = other.ask(t, "GET", fmt.Sprintf("/api/user/ledger/?account=quota/%d", sold.ID), "")
	refused(t, "another user's quota", theirs, 404, "SUBSCRIPTION_NOT_FOUND")
}
