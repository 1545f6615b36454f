package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
)

const sold = `
	price * {
		input 1.00
		output 10.00
		context 1000
		max_output 100
	}
	plan 1 Starter {
		price 9.90
		quota 12.00
		duration 1 month
	}
`

// asked runs a command with --json and decodes what it prints.
func asked[T any](t *testing.T, g *gatetest.Gate, args ...string) (out T) {
	t.Helper()
	code, stdout, stderr := g.Command(t, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(stdout), &out); code != 0 || err != nil {
		t.Fatalf("%v ended with %d, %v: %s%s", args, code, err, stdout, stderr)
	}
	return out
}

func TestAnOperatorMovesMoneyAndSeesWhatBecameOfIt(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: sold, Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	type change struct {
		Amount, Balance string
		Replayed        bool
	}
	credit := []string{"wallet", "credit", "ann", "5.00", "--reason", "a gift", "--idempotency-key", "k1"}
	if got := asked[change](t, g, credit...); got != (change{"5.00", "5.00", false}) {
		t.Errorf("a credit came to %+v", got)
	}
	if got := asked[change](t, g, credit...); got != (change{"5.00", "5.00", true}) {
		t.Errorf("again with its key it came to %+v", got)
	}
	if got := asked[change](t, g, "wallet", "debit", "ann", "1.50", "--reason", "a fee"); got != (change{"-1.50", "3.50", false}) {
		t.Errorf("a debit came to %+v", got)
	}
	type lines struct {
		Total int
		Items []struct{ Kind, Amount, Balance, Reason string }
	}
	if got := asked[lines](t, g, "wallet", "ledger", "ann"); got.Total != 2 || got.Items[0].Kind != "debit" || got.Items[0].Reason != "a fee" || got.Items[1].Balance != "5.00" {
		t.Errorf("the ledger has %+v", got)
	}
	if w := asked[gatetest.Wallet](t, g, "wallet", "show", "ann"); w.Balance != 3_500_000_000 {
		t.Errorf("the wallet has %+v", w)
	}

	type subscription struct {
		ID     int64 `json:"subscription_id"`
		Status string
	}
	granted := asked[subscription](t, g, "subscription", "grant", "ann", "1", "--reason", "for testing")
	if granted != (subscription{1, "active"}) {
		t.Errorf("granted was %+v", granted)
	}
	if got := asked[subscription](t, g, "subscription", "cancel", "1", "--reason", "done", "--yes"); got.Status != "cancelled" {
		t.Errorf("cancelled it is %+v", got)
	}
	if got := asked[struct{ Items []subscription }](t, g, "subscription", "list", "--user", "ann"); len(got.Items) != 1 {
		t.Errorf("listed are %+v", got)
	}
	if got := asked[struct{ Items []struct{ Title string } }](t, g, "plan", "list"); len(got.Items) != 1 || got.Items[0].Title != "Starter" {
		t.Errorf("plans are %+v", got)
	}
	g.Verify(t)
}

// table is what a command prints for people: rows of cells.
func table(t *testing.T, g *gatetest.Gate, args ...string) (rows []string) {
	t.Helper()
	code, stdout, stderr := g.Command(t, "", args...)
	if code != 0 {
		t.Fatalf("%v ended with %d: %s%s", args, code, stdout, stderr)
	}
	columns := regexp.MustCompile(` {2,}`)
	for line := range strings.Lines(stdout) {
		rows = append(rows, columns.ReplaceAllString(strings.TrimSpace(line), " | "))
	}
	return rows
}

func TestWhatIsWrittenOffIsShownAndStandsInTheLedgerAndInTheAudit(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: sold + "base_url http://127.0.0.1:PORT\npayment demo\n", Site: gatetest.Proxied + "\nmodelgate_console\n"})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	token := asked[struct {
		Secret string `json:"access_token"`
	}](t, g, "user", "token", "ann")
	var order struct {
		Data struct {
			TradeNo string `json:"trade_no"`
		} `json:"data"`
	}
	opened := g.Do(t, http.MethodPost, "/api/user/demo/pay", "Authorization: Bearer "+token.Secret+"\nContent-Type: application/json", `{"amount":"10.00"}`)
	if err := json.Unmarshal([]byte(opened.Body), &order); err != nil || opened.Status != http.StatusOK {
		t.Fatalf("%d %s", opened.Status, opened.Body)
	}
	onPage := func(action string) {
		t.Helper()
		got := g.Do(t, http.MethodPost, "/api/user/demo/page/"+order.Data.TradeNo, "Content-Type: application/x-www-form-urlencoded\nSec-Fetch-Site: same-origin", "action="+action)
		if got.Status != http.StatusOK {
			t.Fatalf("%s: %d %s", action, got.Status, got.Body)
		}
	}
	onPage("pay")
	asked[struct{}](t, g, "wallet", "debit", "ann", "7.00", "--reason", "spent")
	onPage("dispute") // 3.00 of the wallet, and 7.00 are owed
	asked[struct{}](t, g, "wallet", "credit", "ann", "2.00", "--reason", "a part")

	if got := table(t, g, "wallet", "clear", "ann", "--reason", "settled"); !slices.Equal(got, []string{"AMOUNT | BALANCE | OWED | WRITTEN OFF", "-2.00 | 0.00 | 0.00 | 5.00"}) {
		t.Errorf("clearing prints %q", got)
	}
	if got := table(t, g, "wallet", "ledger", "ann", "--limit", "1", "--skip", "1"); len(got) != 3 || got[2] != "There are more: --skip 2" {
		t.Errorf("a part of the ledger is %q", got)
	}
	got := table(t, g, "wallet", "ledger", "ann", "--account", "receivable")
	if len(got) < 3 || got[0] != "TIME | KIND | AMOUNT | HELD | BALANCE | REFERENCE | REASON" ||
		!strings.HasSuffix(got[1], " | clear | 7.00 | 0.00 | 0.00 | written off 5.00 | settled") || !strings.Contains(got[2], " | dispute | -7.00 | 0.00 | -7.00 | "+order.Data.TradeNo) {
		t.Errorf("the receivable is %q", got)
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "wallet.clear" && l.Text("detail") == "-2.00, written off 5.00, settled"
	})
	g.Verify(t)
}

func TestListsNameUsersAndSayWhatWasDoneBefore(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: sold, Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	asked[struct{}](t, g, "key", "create", "ann")
	grant := []string{"subscription", "grant", "ann", "1", "--reason", "sorry", "--idempotency-key", "g1"}
	if got := table(t, g, grant...); strings.Contains(got[0], "before") {
		t.Errorf("a first grant prints %q", got)
	}
	if got := table(t, g, grant...); got[0] != "This was done before, with this idempotency key; nothing was done now." {
		t.Errorf("a second grant prints %q", got)
	}
	for _, noun := range []string{"key", "subscription"} {
		if got := table(t, g, noun, "list"); len(got) != 2 || !strings.Contains(got[1], " | ann | ") {
			t.Errorf("the list of each %s is %q", noun, got)
		}
	}
	cancel := []string{"subscription", "cancel", "1", "--reason", "x", "--yes"}
	table(t, g, cancel...)
	if code, _, stderr := g.Command(t, "", cancel...); code != 4 || !strings.Contains(stderr, "was cancelled already") {
		t.Errorf("cancelling twice ended with %d: %s", code, stderr)
	}
}

func TestWhatNobodyHadIsAColumnOfTheReport(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: sold, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	call := func(model string, input int) {
		t.Helper()
		g.Backend.On(model, gatetest.JSON(http.StatusOK, fmt.Sprintf(`{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":%d,"output_tokens":3}}`, input)))
		body := `{"model":"` + model + `","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
		if got := g.Do(t, http.MethodPost, "/v1/messages", "X-Api-Key: "+key.Secret+"\nAnthropic-Version: 2023-06-01\nContent-Type: application/json", body); got.Status != http.StatusOK {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		g.WalletAtRest(t, key.UserID)
	}
	call("a", 7)
	if got := table(t, g, "usage", "report", "--by", "model"); !slices.Equal(got, []string{"MODEL | CALLS | INPUT | OUTPUT | COST", "a | 1 | 7 | 3 | 0.000037"}) {
		t.Errorf("the report is %q", got)
	}
	made := asked[callList](t, g, "call", "list", "--user", key.UserID).ids()
	if got := table(t, g, "wallet", "ledger", key.UserID); len(made) != 1 || !strings.HasSuffix(strings.TrimSuffix(got[1], " |"), " | "+made[0]) {
		t.Errorf("the calls are %v, the ledger is %q", made, got)
	}
	asked[struct{}](t, g, "key", "limit", key.ID, "--budget", "0.0002")
	call("b", 900) // more than its body let expect, and than the budget has
	if got := table(t, g, "usage", "report", "--by", "model"); len(got) != 3 || got[0] != "MODEL | CALLS | INPUT | OUTPUT | COST | UNCOLLECTED" ||
		!strings.HasSuffix(got[1], " | 0.00") || strings.HasSuffix(got[2], " | 0.00") {
		t.Errorf("the report is %q", got)
	}
}

func TestTasksAreAColumnOfTheReport(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += sold
	g := gatetest.Start(t, config)
	key := g.Payer(t)
	g.Backend.On("a", gatetest.JSON(http.StatusOK, `{"choices":[{"text":"four","finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`))
	if got := g.Do(t, http.MethodPost, "/v1/completions", "X-Api-Key: "+key.Secret, `{"model":"a","prompt":"hello"}`); got.Status != http.StatusOK {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	s.SetState(gatetest.JobDone)
	g.Until(t, gatetest.Submit(t, key), task.Success)
	g.Until(t, gatetest.Submit(t, key), task.Success)
	s.SetState(gatetest.JobRejected)
	g.Until(t, gatetest.Submit(t, key), task.Failed) // which costs nothing, and does not count
	if got := g.WalletAtRest(t, key.UserID); got.Balance.String() != "98.399963" {
		t.Errorf("the wallet has %+v", got)
	}
	if got := table(t, g, "usage", "report", "--by", "model"); !slices.Equal(got, []string{
		"MODEL | CALLS | TASKS | INPUT | OUTPUT | COST", "a | 1 | 0 | 7 | 3 | 0.000037", "video-x-1 | 0 | 2 | 0 | 0 | 1.60",
	}) {
		t.Errorf("the report is %q", got)
	}
	var told struct {
		Today, Month struct {
			Calls, Tasks int
			Cost         string
		}
	}
	got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, "")
	if err := json.Unmarshal([]byte(got.Body), &told); err != nil || told.Today != told.Month || told.Today.Calls != 1 || told.Today.Tasks != 2 || told.Today.Cost != "1.600037" {
		t.Errorf("a key is told %s, %v", got.Body, err)
	}
	g.Verify(t)
}

func TestUsageAddsUpToWhatTheLedgerTook(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += sold
	g := gatetest.Start(t, config)
	const answer = `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":7,"output_tokens":3}}`
	var taken money.Amount
	for _, model := range []string{"a", "b", "=cmd"} {
		key := g.NewKey(t, nil)
		g.Credit(t, key.UserID, "1.00")
		g.Backend.On(model, gatetest.JSON(http.StatusOK, answer))
		body := `{"model":"` + model + `","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
		if got := g.Do(t, http.MethodPost, "/v1/messages", "X-Api-Key: "+key.Secret+"\nAnthropic-Version: 2023-06-01\nContent-Type: application/json", body); got.Status != http.StatusOK {
			t.Fatalf("%d %s", got.Status, got.Body)
		}
		taken += money.Unit - g.WalletAtRest(t, key.UserID).Balance
	}
	key := g.Payer(t)
	s.SetState(gatetest.JobDone)
	g.Until(t, gatetest.Submit(t, key), task.Success)
	taken += 100*money.Unit - g.WalletAtRest(t, key.UserID).Balance
	for _, by := range []string{"day", "user", "key", "model", "day,user,key,model"} {
		code, stdout, stderr := g.Command(t, "", "usage", "report", "--by", by, "--csv")
		rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
		if code != 0 || err != nil {
			t.Fatalf("by %s it ended with %d, %v: %s", by, code, err, stderr)
		}
		var sum money.Amount
		for _, row := range rows[1:] {
			cost, err := money.Parse(row[slices.Index(rows[0], "cost")])
			if err != nil {
				t.Fatal(err)
			}
			sum += cost
			if strings.HasPrefix(row[4], "=") {
				t.Errorf("a spreadsheet would run %q", row[4])
			}
		}
		if sum != taken || taken != 3*(7*1000+3*10_000)+80*money.Unit/100 {
			t.Errorf("by %s it sums up to %v, %v was taken", by, sum, taken)
		}
	}
}

func TestABackupIsVerifiedWithoutItsServer(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: sold, Site: gatetest.Proxied, Storage: `badger "` + filepath.ToSlash(filepath.Join(t.TempDir(), "store")) + `"`})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "5.00")
	code, stdout, stderr := g.Command(t, "", "backup", "-")
	if code != 0 || stderr != "" {
		t.Fatal(code, stderr)
	}
	file := filepath.Join(t.TempDir(), "backup")
	if err := os.WriteFile(file, []byte(stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = gatetest.Caddy(t, "", "modelgate", "verify", "--backup", file)
	if code != 0 || !strings.Contains(stdout, "Everything adds up.") || !strings.Contains(stdout, "2 accounts, 1 entry, 1 transfer,") {
		t.Errorf("ended with %d: %s%s", code, stdout, stderr)
	}
}
