package cli_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// exported exports the ledger and returns one map per line.
func exported(t *testing.T, g *gatetest.Gate, flags ...string) (lines []map[string]string) {
	t.Helper()
	code, stdout, stderr := g.Command(t, "", append([]string{"ledger", "export"}, flags...)...)
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if code != 0 || err != nil {
		t.Fatalf("the export %q: exit code %d, %v: %s", flags, code, err, stderr)
	}
	for _, row := range rows[1:] {
		line := make(map[string]string)
		for i, cell := range row {
			line[rows[0][i]] = cell
		}
		lines = append(lines, line)
	}
	return lines
}

func amountOf(t *testing.T, text string) money.Amount {
	t.Helper()
	var amount money.Amount
	if err := json.Unmarshal([]byte(`"`+text+`"`), &amount); err != nil {
		t.Fatal(err)
	}
	return amount
}

func TestThePaymentReportMatchesTheLedger(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	ann := g.NewBuyer(t, nil)
	today := func() string { return g.Now().UTC().Format(time.DateOnly) }
	waitForMidnight(g)
	one, first := ann.TopUp(t, "10.00"), today()
	ann.TopUp(t, "5.00")
	ann.Notify(t, "refunded", one, "1.00")
	ann.Request(t, http.MethodPost, "/api/user/demo/pay", `{"amount":"4.00"}`) // not paid
	g.Wait(24 * time.Hour)
	second := today()
	ann.Notify(t, "disputed", one, "9.00")
	g.Wait(24 * time.Hour)
	third := today()
	ann.Notify(t, "restored", one, "9.00")
	ann.TopUp(t, "2.00")

	const head = "day,provider,currency,orders,gross,refunds,disputes,restored,net,count\n"
	for flags, want := range map[string]string{
		"":              first + ",demo,USD,2,15.00,1.00,0.00,0.00,14.00,3\n" + second + ",demo,USD,0,0.00,0.00,9.00,0.00,-9.00,1\n" + third + ",demo,USD,1,2.00,0.00,0.00,9.00,11.00,2\n",
		"--by provider": ",demo,USD,3,17.00,1.00,9.00,9.00,16.00,6\n",
		"--by day --from " + second + " --to " + second: second + ",,USD,0,0.00,0.00,9.00,0.00,-9.00,1\n",
		"--by provider --from " + second + "T12:00:00Z": ",demo,USD,1,2.00,0.00,0.00,9.00,11.00,2\n",
		"--from " + third: third + ",demo,USD,1,2.00,0.00,0.00,9.00,11.00,2\n",
	} {
		code, stdout, stderr := g.Command(t, "", append([]string{"payments", "report", "--csv"}, strings.Fields(flags)...)...)
		if code != 0 || stdout != head+want {
			t.Errorf("%s: exit code %d: %s%s, want\n%s", flags, code, stdout, stderr, head+want)
		}
	}
	if got := table(t, g, "payments", "report", "--by", "provider"); !slices.Equal(got, []string{
		"DAY | PROVIDER | CURRENCY | ORDERS | GROSS | REFUNDS | DISPUTES | RESTORED | NET | COUNT", "- | demo | USD | 3 | 17.00 | 1.00 | 9.00 | 9.00 | 16.00 | 6",
	}) {
		t.Errorf("the report is %q", got)
	}
	inLedger := make(map[string]money.Amount)
	for _, line := range exported(t, g) {
		if day, is := strings.CutPrefix(line["account"], "s/paid/demo/"); is {
			inLedger[day] -= amountOf(t, line["amount"])
		}
	}
	reported := make(map[string]money.Amount)
	for _, row := range runJSON[struct {
		Items []struct {
			Day string
			Net money.Amount
		}
	}](t, g, "payments", "report").Items {
		reported[row.Day] += row.Net
	}
	if !maps.Equal(inLedger, reported) {
		t.Errorf("the ledger has %v, the report %v", inLedger, reported)
	}
	for _, args := range []string{"--by week", "--csv --json", "--from yesterday", "--from 2026-11-02 --to 2026-11-01"} {
		if code, stdout, _ := g.Command(t, "", append([]string{"payments", "report"}, strings.Fields(args)...)...); code != 2 && code != 4 {
			t.Errorf("%s: exit code %d: %s", args, code, stdout)
		}
	}
}

func TestTheLedgerIsExportedWithAllAccounts(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	waitForMidnight(g)
	ann := g.NewBuyer(t, nil)
	number := ann.TopUp(t, "10.00")
	ann.Buy(t, 1)
	runJSON[struct{}](t, g, "wallet", "debit", ann.UserID, "1.00", "--reason", "=SUM(A1)")
	g.Wait(24 * time.Hour)
	g.Credit(t, ann.UserID, "3.00")
	today := g.Now().UTC().Format(time.DateOnly)
	lines := exported(t, g, "--csv")
	sums, balances := make(map[string]money.Amount), make(map[string]money.Amount)
	for _, line := range lines {
		sums[line["transfer_id"]] += amountOf(t, line["amount"])
		balances[line["account"]] += amountOf(t, line["amount"])
		if line["user_id"] != ann.UserID || line["time"] == "" || line["number"] == "0" {
			t.Errorf("the line is %v", line)
		}
		if line["kind"] == "topup" && line["reference"] != number || line["kind"] == "debit" && (line["reason"] != "'=SUM(A1)" || line["actor"] != "operator") {
			t.Errorf("the line is %v", line)
		}
	}
	if len(sums) != 4 || slices.ContainsFunc(slices.Collect(maps.Values(sums)), func(sum money.Amount) bool { return sum != 0 }) {
		t.Errorf("the sums of the transfers are %v", sums)
	}
	if got, want := balances["u/"+ann.UserID+"/wallet"], g.Wallet(t, ann.UserID).Balance; got != want {
		t.Errorf("the export of the wallet sums to %v, want %v", got, want)
	}
	if got := exported(t, g, "--from", today); len(got) != 2 || got[0]["kind"] != "credit" || got[1]["kind"] != "credit" {
		t.Errorf("the lines of today are %v", got)
	}
	if got := exported(t, g, "--to", today+"T00:00:00Z"); len(got) != len(lines)-2 {
		t.Errorf("%d of %d lines are from before today", len(got), len(lines))
	}
	yesterday := g.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly)
	if got := exported(t, g, "--from", yesterday, "--to", yesterday); len(got) != len(lines)-2 {
		t.Errorf("%d of %d lines are from yesterday", len(got), len(lines))
	}
	for flags, code := range map[string]int{"--json": 2, "--csv=false": 2, "--from never": 4} {
		if got, stdout, _ := g.Command(t, "", append([]string{"ledger", "export"}, strings.Fields(flags)...)...); got != code || stdout != "" {
			t.Errorf("%s: exit code %d: %s", flags, got, stdout)
		}
	}
}

func TestAnExportNamesTheTaskOfAHoldAndItsSettlement(t *testing.T) {
	s := gatetest.NewMockService(t)
	g := gatetest.Start(t, s.Config(""))
	ann := g.Payer(t)
	s.SetState(gatetest.JobDone)
	id := gatetest.Submit(t, ann)
	g.Until(t, id, task.Success)
	kinds := make(map[string]int)
	for _, line := range exported(t, g) {
		if line["task_id"] != "" && line["task_id"] != id || line["kind"] == "credit" && line["task_id"] != "" {
			t.Errorf("the line is %v", line)
		}
		if line["task_id"] == id {
			kinds[line["kind"]]++
		}
	}
	if len(kinds) != 2 || kinds["hold"] == 0 || kinds["settle"] == 0 {
		t.Errorf("the lines of the task are %v", kinds)
	}
}

func TestAnIncompleteExportFails(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	store := gatetest.Runtime(t).Store
	err := store.Update(t.Context(), func(txn storage.Txn) error {
		for n := range 3000 { // more than one batch
			x := journal.Transfer{ID: journal.IDOf(fmt.Sprint(n)), Kind: journal.Credit, User: "usr_1", Reason: strings.Repeat("x", 200), Legs: journal.LegsBetween(journal.Operator, journal.Wallet("usr_1"), 1)}
			if _, err := journal.Book(txn, g.Now(), x); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if lines := exported(t, g); len(lines) != 6000 {
		t.Fatalf("%d lines are exported", len(lines))
	}
	last := journal.ID([]byte(strings.Repeat("\xff", 16)))
	if err := store.Update(t.Context(), func(txn storage.Txn) error { return txn.Set(journal.TransferKey(last), []byte("x"), time.Time{}) }); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := g.Command(t, "", "ledger", "export")
	if code != 1 || !strings.Contains(stderr, "the export is incomplete") || strings.Count(stdout, "\n") < 1000 {
		t.Errorf("an export that stopped after %d lines: exit code %d: %s", strings.Count(stdout, "\n"), code, stderr)
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("msg") == "ledger export failed" && strings.Contains(l.Text("error"), last.String())
	})
}
