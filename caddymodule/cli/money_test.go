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

const salesConfig = `
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

// runJSON runs a command with --json and decodes its output.
func runJSON[T any](t *testing.T, g *gatetest.Gate, args ...string) (out T) {
	t.Helper()
	code, stdout, stderr := g.Command(t, "", append(args, "--json")...)
	if err := json.Unmarshal([]byte(stdout), &out); code != 0 || err != nil {
		t.Fatalf("%v: exit code %d, %v: %s%s", args, code, err, stdout, stderr)
	}
	return out
}

func TestCommandsMoveMoneyAndListItsTransfers(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	type change struct {
		Amount, Balance string
		Replayed        bool
	}
	credit := []string{"wallet", "credit", "ann", "5.00", "--reason", "a gift", "--idempotency-key", "k1"}
	if got := runJSON[change](t, g, credit...); got != (change{"5.00", "5.00", false}) {
		t.Errorf("a credit returned %+v", got)
	}
	if got := runJSON[change](t, g, credit...); got != (change{"5.00", "5.00", true}) {
		t.Errorf("a repeated credit returned %+v", got)
	}
	if got := runJSON[change](t, g, "wallet", "debit", "ann", "1.50", "--reason", "a fee"); got != (change{"-1.50", "3.50", false}) {
		t.Errorf("a debit returned %+v", got)
	}
	type lines struct {
		Total int
		Items []struct{ Kind, Amount, Balance, Reason string }
	}
	if got := runJSON[lines](t, g, "wallet", "ledger", "ann"); got.Total != 2 || got.Items[0].Kind != "debit" || got.Items[0].Reason != "a fee" || got.Items[1].Balance != "5.00" {
		t.Errorf("the ledger has %+v", got)
	}
	if w := runJSON[gatetest.Wallet](t, g, "wallet", "show", "ann"); w.Balance != 3_500_000_000 {
		t.Errorf("the wallet has %+v", w)
	}

	type subscription struct {
		ID     int64 `json:"subscription_id"`
		Status string
	}
	granted := runJSON[subscription](t, g, "subscription", "grant", "ann", "1", "--reason", "for testing")
	if granted != (subscription{1, "active"}) {
		t.Errorf("the granted subscription is %+v", granted)
	}
	if got := runJSON[subscription](t, g, "subscription", "cancel", "1", "--reason", "done", "--yes"); got.Status != "cancelled" {
		t.Errorf("the cancelled subscription is %+v", got)
	}
	if got := runJSON[struct{ Items []subscription }](t, g, "subscription", "list", "--user", "ann"); len(got.Items) != 1 {
		t.Errorf("the list is %+v", got)
	}
	if got := runJSON[struct{ Items []struct{ Title string } }](t, g, "plan", "list"); len(got.Items) != 1 || got.Items[0].Title != "Starter" {
		t.Errorf("the plans are %+v", got)
	}
	g.Verify(t)
}

// table runs a command and returns its rows, with " | " between the cells.
func table(t *testing.T, g *gatetest.Gate, args ...string) (rows []string) {
	t.Helper()
	code, stdout, stderr := g.Command(t, "", args...)
	if code != 0 {
		t.Fatalf("%v: exit code %d: %s%s", args, code, stdout, stderr)
	}
	columns := regexp.MustCompile(` {2,}`)
	for line := range strings.Lines(stdout) {
		rows = append(rows, columns.ReplaceAllString(strings.TrimSpace(line), " | "))
	}
	return rows
}

func TestAWriteOffIsInTheLedgerAndInTheAuditLog(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig + "base_url http://127.0.0.1:PORT\npayment demo\n", Site: gatetest.Proxied + "\nmodelgate_console\n"})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	token := runJSON[struct {
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
	runJSON[struct{}](t, g, "wallet", "debit", "ann", "7.00", "--reason", "spent")
	onPage("dispute") // takes 3.00 from the wallet; 7.00 are owed
	runJSON[struct{}](t, g, "wallet", "credit", "ann", "2.00", "--reason", "a part")

	if got := table(t, g, "wallet", "clear", "ann", "--reason", "settled"); !slices.Equal(got, []string{"AMOUNT | BALANCE | OWED | WRITTEN OFF", "-2.00 | 0.00 | 0.00 | 5.00"}) {
		t.Errorf("wallet clear prints %q", got)
	}
	if got := table(t, g, "wallet", "ledger", "ann", "--limit", "1", "--skip", "1"); len(got) != 3 || got[2] != "There are more: --skip 2" {
		t.Errorf("a page of the ledger is %q", got)
	}
	got := table(t, g, "wallet", "ledger", "ann", "--account", "receivable")
	if len(got) < 3 || got[0] != "TIME | KIND | AMOUNT | HELD | BALANCE | REFERENCE | REASON" ||
		!strings.HasSuffix(got[1], " | clear | 7.00 | 0.00 | 0.00 | written off 5.00 | settled") || !strings.Contains(got[2], " | dispute | -7.00 | 0.00 | -7.00 | "+order.Data.TradeNo) {
		t.Errorf("the receivable is %q", got)
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "wallet.clear" && l.Text("detail") == "-2.00, written off 5.00" && l.Text("reason") == "settled"
	})
	g.Verify(t)
}

func TestListsNameUsersAndRepeatedGrantsChangeNothing(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied})
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "ann"}, nil)
	runJSON[struct{}](t, g, "key", "create", "ann")
	grant := []string{"subscription", "grant", "ann", "1", "--reason", "sorry", "--idempotency-key", "g1"}
	if got := table(t, g, grant...); strings.Contains(got[0], "Nothing was changed") {
		t.Errorf("the first grant prints %q", got)
	}
	if got := table(t, g, grant...); got[0] != "Nothing was changed: an earlier command had this idempotency key. This is its result." {
		t.Errorf("the second grant prints %q", got)
	}
	for _, noun := range []string{"key", "subscription"} {
		if got := table(t, g, noun, "list"); len(got) != 2 || !strings.Contains(got[1], " | ann | ") {
			t.Errorf("%s list prints %q", noun, got)
		}
	}
	cancel := []string{"subscription", "cancel", "1", "--reason", "x", "--yes"}
	table(t, g, cancel...)
	if code, _, stderr := g.Command(t, "", cancel...); code != 4 || !strings.Contains(stderr, "was cancelled already") {
		t.Errorf("cancelling twice: exit code %d: %s", code, stderr)
	}
}

func TestTheReportHasAColumnForUncollectedCosts(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied})
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
	made := runJSON[callList](t, g, "call", "list", "--user", key.UserID).ids()
	if got := table(t, g, "wallet", "ledger", key.UserID); len(made) != 1 || !strings.HasSuffix(strings.TrimSuffix(got[1], " |"), " | "+made[0]) {
		t.Errorf("the calls are %v, the ledger is %q", made, got)
	}
	runJSON[struct{}](t, g, "key", "limit", key.ID, "--budget", "0.0002")
	call("b", 900) // more than the estimate and than the budget
	if got := table(t, g, "usage", "report", "--by", "model"); len(got) != 3 || got[0] != "MODEL | CALLS | INPUT | OUTPUT | COST | UNCOLLECTED" ||
		!strings.HasSuffix(got[1], " | 0.00") || strings.HasSuffix(got[2], " | 0.00") {
		t.Errorf("the report is %q", got)
	}
}

func TestTheReportHasAColumnForTasks(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += salesConfig
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
	g.Until(t, gatetest.Submit(t, key), task.Failed) // not charged and not counted
	if got := g.WalletAtRest(t, key.UserID); got.Balance.String() != "98.399963" {
		t.Errorf("the wallet has %+v", got)
	}
	if got := table(t, g, "usage", "report", "--by", "model"); !slices.Equal(got, []string{
		"MODEL | CALLS | TASKS | INPUT | OUTPUT | COST", "a | 1 | 0 | 7 | 3 | 0.000037", "video-x-1 | 0 | 2 | 0 | 0 | 1.60",
	}) {
		t.Errorf("the report is %q", got)
	}
	var answer struct {
		Today, Month struct {
			Calls, Tasks int
			Cost         string
		}
	}
	got := g.Do(t, http.MethodGet, "/v1/usage", "X-Api-Key: "+key.Secret, "")
	if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || answer.Today != answer.Month || answer.Today.Calls != 1 || answer.Today.Tasks != 2 || answer.Today.Cost != "1.600037" {
		t.Errorf("/v1/usage returns %s, %v", got.Body, err)
	}
	g.Verify(t)
}

func TestTheUsageReportMatchesTheLedger(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += salesConfig
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
			t.Fatalf("by %s: exit code %d, %v: %s", by, code, err, stderr)
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
			t.Errorf("by %s the sum is %v, want %v", by, sum, taken)
		}
	}
}

func TestABackupCanBeVerifiedWithoutAServer(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied, Storage: `badger "` + filepath.ToSlash(filepath.Join(t.TempDir(), "store")) + `"`})
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
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
}
