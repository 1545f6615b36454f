package console_test

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// line is a line of an account.
type line struct {
	Number    uint64       `json:"number"`
	Time      int64        `json:"time"`
	Kind      string       `json:"kind"`
	Amount    money.Amount `json:"amount"`
	Balance   money.Amount `json:"balance"`
	Transfer  string       `json:"transfer_id"`
	Reference string       `json:"reference"`
	Reason    string       `json:"reason"`
	Count     int          `json:"count"`
	Held      string       `json:"held"`
}

func TestTheLedgerIsShownNewestFirstAndAddsUp(t *testing.T) {
	g := start(t)
	a, other := newAccount(t, g), newAccount(t, g)
	g.Credit(t, a.name, "30.00")
	bought := post[bought](t, a, pay, `{"plan_id":1,"idempotency_key":"k"}`)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"5.00"}`)
	g.Do(t, "POST", "/api/user/demo/page/"+o.TradeNo, fromThePage, "action=pay")

	lines := get[page[line]](t, a, "/api/user/ledger")
	var kinds []string
	var sum money.Amount
	for i, l := range lines.Items {
		kinds = append(kinds, l.Kind)
		sum += l.Amount
		if l.Held != "0.00" {
			t.Errorf("line %d does not say that nothing is held", i)
		}
		if l.Number != uint64(len(lines.Items)-i) || len(l.Transfer) != 32 || l.Time < time.Now().Add(-time.Minute).Unix() {
			t.Errorf("line %d is %+v", i, l)
		}
		if i > 0 && lines.Items[i-1].Balance-lines.Items[i-1].Amount != l.Balance {
			t.Errorf("the balance after %+v is not that before %+v", l, lines.Items[i-1])
		}
	}
	if got := strings.Join(kinds, " "); got != "topup purchase credit" || lines.Total != 3 {
		t.Errorf("the lines are %s, in all %d", got, lines.Total)
	}
	if sum.String() != a.balance(t) || lines.Items[0].Balance != sum || lines.Items[0].Reference != o.TradeNo || lines.Items[1].Transfer != bought.Order {
		t.Errorf("the lines come to %v, the balance is %s: %+v", sum, a.balance(t), lines.Items)
	}
	second := get[page[line]](t, a, "/api/user/ledger/?p=2&page_size=2")
	if len(second.Items) != 1 || second.Items[0] != lines.Items[2] || second.Total != 3 {
		t.Errorf("the second page is %+v", second)
	}
	if beyond := get[page[line]](t, a, "/api/user/ledger?p=3&page_size=2"); beyond.Items == nil || len(beyond.Items) != 0 {
		t.Errorf("the third page is %+v", beyond)
	}
	quota := get[page[line]](t, a, fmt.Sprintf("/api/user/ledger?account=quota/%d/%d", bought.ID, bought.Start))
	if quota.Total != 1 || quota.Items[0].Balance.String() != "12.00" {
		t.Errorf("the quota's lines are %+v", quota)
	}
	if theirs := get[page[line]](t, other, fmt.Sprintf("/api/user/ledger?account=quota/%d/%d", bought.ID, bought.Start)); theirs.Total != 0 {
		t.Errorf("another user is shown %+v", theirs)
	}
}

func TestWhatIsOwedAndWhatWasWrittenOffStandInTheReceivable(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	o := post[order](t, a, "/api/user/demo/pay", `{"amount":"5.00"}`)
	onPage := func(action string) {
		if got := g.Do(t, "POST", "/api/user/demo/page/"+o.TradeNo, fromThePage, "action="+action); got.Status != 200 {
			t.Fatalf("%s: %d %s", action, got.Status, got.Body)
		}
	}
	onPage("pay")
	g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+a.name+"/debit", map[string]any{"amount": "3.00", "reason": "spent"}, nil)
	onPage("dispute")
	g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+a.name+"/clear", map[string]any{"reason": "settled"}, nil)
	var told []string
	for _, l := range get[page[line]](t, a, "/api/user/ledger?account=receivable").Items {
		told = append(told, fmt.Sprintf("%s %s %s %s", l.Kind, l.Amount, l.Balance, l.Reference))
	}
	if got, want := strings.Join(told, "; "), "clear 3.00 0.00 written off 3.00; dispute -3.00 -3.00 "+o.TradeNo; got != want {
		t.Errorf("the receivable says %q, want %q", got, want)
	}
	g.Verify(t)
}

func TestTheLedgerAsCSVIsTheSameAndHoldsNoFormula(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	for _, reason := range []string{`=HYPERLINK("http://evil.example")`, "+1", "-1", "@SUM(A1)", `plain, "quoted"`} {
		g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+a.name+"/credit", map[string]any{"amount": "1.00", "reason": reason}, nil)
	}
	key := g.NewKey(t, map[string]any{"user": a.name})
	g.Backend.On("priced", gatetest.JSON(http.StatusOK, `{"choices":[{"text":"four"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
	if got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+key.Secret, `{"model":"priced","prompt":"hello"}`); got.Status != 200 {
		t.Fatalf("a call is answered %d %s", got.Status, got.Body)
	}
	g.WalletAtRest(t, a.name)
	lines := get[page[line]](t, a, "/api/user/ledger").Items
	if lines[0].Count != 1 {
		t.Errorf("the line of one call is %+v", lines[0])
	}

	answer := g.Do(t, "GET", "/api/user/ledger?format=csv", a.auth, "")
	if answer.Header.Get("Content-Type") != "text/csv; charset=utf-8" || !strings.HasPrefix(answer.Header.Get("Content-Disposition"), "attachment;") {
		t.Errorf("headers %v", answer.Header)
	}
	rows, err := csv.NewReader(strings.NewReader(answer.Body)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(rows[0], " "); got != "number time kind amount held balance reference reason count transfer_id" {
		t.Errorf("the columns are %s", got)
	}
	if len(rows)-1 != len(lines) {
		t.Fatalf("%d rows for %d lines", len(rows)-1, len(lines))
	}
	for i, row := range rows[1:] {
		l := lines[i]
		at, err := time.Parse(time.RFC3339, row[1])
		if err != nil || at.Unix() != l.Time || row[0] != fmt.Sprint(l.Number) || row[2] != l.Kind || row[3] != l.Amount.String() || row[5] != l.Balance.String() || row[9] != l.Transfer {
			t.Errorf("row %q of line %+v", row, l)
		}
		if count := strings.TrimSuffix(fmt.Sprint(l.Count), "0"); row[8] != count {
			t.Errorf("the count %q is written %q", count, row[8])
		}
		if bare := strings.TrimPrefix(row[7], "'"); bare != l.Reason || (bare == row[7]) != (bare == "" || strings.HasPrefix(bare, "plain")) {
			t.Errorf("the reason %q is written %q", l.Reason, row[7])
		}
	}
}

func TestALongLedgerIsWholeAsCSV(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	const n = 1203 // more than two batches
	for i := range n {
		g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+a.name+"/credit", map[string]any{"amount": "0.01", "reason": fmt.Sprint(i)}, nil)
	}
	answer := g.Do(t, "GET", "/api/user/ledger?format=csv", a.auth, "")
	rows, err := csv.NewReader(strings.NewReader(answer.Body)).ReadAll()
	if err != nil || len(rows) != n+1 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		if row[0] != fmt.Sprint(n-i) {
			t.Fatalf("row %d is number %s", i, row[0])
		}
	}
}

// called is a call as the console shows it.
type called struct {
	RequestID string         `json:"request_id"`
	Time      int64          `json:"time"`
	KeyID     string         `json:"key_id"`
	Model     string         `json:"model"`
	Status    int            `json:"status"`
	Ended     string         `json:"ended"`
	Usage     string         `json:"usage"`
	Tokens    map[string]int `json:"tokens"`
	Cost      money.Amount   `json:"cost"`
	Duration  *int64         `json:"duration_ms"`
}

type used struct {
	Day    string         `json:"day"`
	Model  string         `json:"model"`
	KeyID  string         `json:"key_id"`
	Calls  int            `json:"calls"`
	Tasks  int            `json:"tasks"`
	Tokens map[string]int `json:"tokens"`
	Cost   money.Amount   `json:"cost"`
}

type report struct {
	Start int64  `json:"start"`
	End   int64  `json:"end"`
	Total used   `json:"total"`
	Items []used `json:"items"`
}

func TestCallsAndUsageAreThoseOfTheLedger(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: app + "price dear {\n request 1.00\n}\n", Site: site})
	a, other := newAccount(t, g), newAccount(t, g)
	g.Credit(t, a.name, "10.00")
	for _, model := range []string{"priced", "dear"} {
		g.Backend.On(model, gatetest.JSON(200, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}`))
	}
	var keys [2]gatetest.Key
	for i := range keys {
		g.MustAdmin(t, http.MethodPost, "/modelgate/keys", map[string]any{"user": a.name}, &keys[i])
	}
	made := make(map[string]bool)
	for _, c := range []struct {
		key   int
		model string
	}{{0, "priced"}, {0, "dear"}, {1, "priced"}, {0, "priced"}, {1, "priced"}} {
		got := g.Do(t, "POST", "/v1/completions", "X-Api-Key: "+keys[c.key].Secret, fmt.Sprintf(`{"model":%q,"prompt":"hello"}`, c.model))
		if got.Status != 200 {
			t.Fatalf("a call is answered %d %s", got.Status, got.Body)
		}
		made[got.RequestID()] = true
	}
	g.WalletAtRest(t, a.name)

	all := get[page[called]](t, a, "/api/log/self")
	var cost money.Amount
	for i, c := range all.Items {
		cost += c.Cost
		if !made[c.RequestID] || i > 0 && c.Time > all.Items[i-1].Time || c.Status != 200 || c.Ended != "complete" || c.Usage != "reported" || c.Tokens["input"] != 7 || c.Tokens["output"] != 2 || c.Duration == nil {
			t.Errorf("call %d is %+v", i, c)
		}
		delete(made, c.RequestID)
	}
	if all.Total != 5 || len(all.Items) != 5 || cost.String() != "2.00" {
		t.Errorf("%d calls of %d for %v", len(all.Items), all.Total, cost)
	}
	if balance := a.balance(t); balance != "8.00" {
		t.Errorf("the balance is %s", balance)
	}

	now := time.Now().Unix()
	for query, want := range map[string]int{
		"key_id=" + keys[0].ID: 3, "key_id=" + keys[1].ID: 2, "key_id=none": 0, "model=dear": 1, "model=dea": 0, "model=priced&key_id=" + keys[0].ID: 2,
		fmt.Sprintf("start=%d", now-3600): 5, fmt.Sprintf("start=%d", now+3600): 0, fmt.Sprintf("end=%d", now-3600): 0, fmt.Sprintf("end=%d", now+3600): 5,
		fmt.Sprintf("start=%d&end=%d", now-40*86400, now+40*86400): 5, fmt.Sprintf("start=%d&end=%d", now-200*86400, now-86400): 0, "start=0": 5,
	} {
		if got := get[page[called]](t, a, "/api/log/self?"+query); got.Total != want || len(got.Items) != want {
			t.Errorf("%s: %d calls of %d, want %d", query, len(got.Items), got.Total, want)
		}
	}
	third := get[page[called]](t, a, "/api/log/self/?p=3&page_size=2")
	if third.Total != 5 || len(third.Items) != 1 || third.Items[0].RequestID != all.Items[4].RequestID {
		t.Errorf("the third page is %+v", third)
	}
	if theirs := get[page[called]](t, other, "/api/log/self"); theirs.Total != 0 || len(theirs.Items) != 0 {
		t.Errorf("another user is shown %+v", theirs)
	}

	for group, want := range map[string]string{
		"day": time.Now().UTC().Format(time.DateOnly) + " 5 2.00", "model": "priced 4 1.00, dear 1 1.00", "key": keys[0].ID + " 3 1.50, " + keys[1].ID + " 2 0.50",
	} {
		got := get[report](t, a, "/api/data/self?group="+group)
		var rows []string
		for _, u := range got.Items {
			rows = append(rows, fmt.Sprintf("%s%s%s %d %v", u.Day, u.Model, u.KeyID, u.Calls, u.Cost))
		}
		if text := strings.Join(rows, ", "); text != want || got.Total.Calls != 5 || got.Total.Cost != cost || got.Total.Tokens["input"] != 35 || got.Total.Tokens["output"] != 10 {
			t.Errorf("by %s: %s, in all %+v, want %s", group, text, got.Total, want)
		}
		if got.End-got.Start != 30*86400 || got.End <= now || got.Start%86400 != 0 {
			t.Errorf("by %s: from %d to %d", group, got.Start, got.End)
		}
	}
	if past := get[report](t, a, fmt.Sprintf("/api/data/self?start=%d&end=%d", now-10*86400, now-2*86400)); past.Items == nil || len(past.Items) != 0 || past.Total.Calls != 0 {
		t.Errorf("in the past: %+v", past)
	}
	g.Verify(t)
}
