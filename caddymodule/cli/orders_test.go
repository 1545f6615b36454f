package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// paymentConfig is a configuration with a payment service.
var paymentConfig = gatetest.Config{App: "base_url http://127.0.0.1:PORT\n" + gatetest.Selling, Site: gatetest.Proxied + gatetest.Console}

type order struct {
	TradeNo  string `json:"trade_no"`
	User     string
	UserName string `json:"user_name"`
	Status   string
	Payment  string
	Amount   string
	Refunded string
}

type orderPage struct {
	Items []order
	Next  string
}

func (p orderPage) numbers() (numbers []string) {
	for _, o := range p.Items {
		numbers = append(numbers, o.TradeNo)
	}
	return numbers
}

// waitForMidnight sets the clock to one second after midnight, so that no day begins during
// the test.
func waitForMidnight(g *gatetest.Gate) {
	g.Wait(g.Now().UTC().Truncate(24 * time.Hour).Add(24*time.Hour + time.Second).Sub(g.Now()))
}

func TestOrdersCanBeFiltered(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	waitForMidnight(g)
	ann, bob := g.NewBuyer(t, nil), g.NewBuyer(t, nil)
	first := ann.TopUp(t, "1.00")
	g.Wait(24 * time.Hour)
	second := bob.TopUp(t, "2.00")
	g.Wait(24 * time.Hour)
	third := ann.TopUp(t, "3.00")
	bob.Notify(t, "refunded", second, "2.00")
	g.Wait(24 * time.Hour)
	fourth := ann.Request(t, http.MethodPost, "/api/user/demo/pay", `{"amount":"4.00"}`).TradeNo
	g.Wait(48 * time.Hour) // it expires
	fifth := bob.Request(t, http.MethodPost, "/api/user/demo/pay", `{"amount":"5.00"}`).TradeNo
	today := func(days int) string { return g.Now().UTC().AddDate(0, 0, days).Format(time.DateOnly) }
	for _, c := range []struct {
		flags string
		want  []string
	}{
		{"", []string{fifth, fourth, third, second, first}},
		{"--user " + ann.UserID, []string{fourth, third, first}},
		{"--provider demo --limit 2", []string{fifth, fourth}},
		{"--provider stripe", nil},
		{"--status paid", []string{third, first}},
		{"--status pending", []string{fifth}},
		{"--status expired", []string{fourth}},
		{"--status refunded", []string{second}},
		{"--status review", nil},
		{"--from " + today(0), []string{fifth}},
		{"--from " + today(-4) + " --to " + today(-3), []string{third, second}},
		{"--user " + ann.UserID + " --to " + today(-3), []string{third, first}},
		{"--from " + today(-4) + "T12:00:00Z --to " + today(-3) + "T12:00:00Z", []string{third}},
		{"--from 1500-01-01 --to " + today(-4), []string{second, first}},
		{"--to 1500-01-01", nil},
		{"--limit 2 --after " + fifth, []string{fourth, third}},
		{"--user " + bob.UserID + " --after " + fifth, []string{second}},
	} {
		if got := runJSON[orderPage](t, g, append([]string{"order", "list"}, strings.Fields(c.flags)...)...).numbers(); !slices.Equal(got, c.want) {
			t.Errorf("order list %s: %q, want %q", c.flags, got, c.want)
		}
	}
	if got := runJSON[orderPage](t, g, "order", "list", "--limit", "2"); got.Next != fourth {
		t.Errorf("the next page is after %q, want %q", got.Next, fourth)
	}
	if got := runJSON[orderPage](t, g, "order", "list", "--limit", "1", "--status", "refunded").Items[0]; got.User != bob.UserID || got.UserName == "" || got.Refunded != "2.00" || got.Payment != "pay_"+second {
		t.Errorf("the order is %+v", got)
	}
	if got := table(t, g, "order", "list", "--limit", "1"); len(got) != 3 || got[0] != "ORDER | USER | PROVIDER | AMOUNT | STATUS | OPENED | PAID | PAYMENT | REFUNDED | DISPUTED | RESTORED" ||
		!strings.HasPrefix(got[1], fifth+" | user-") || !strings.Contains(got[1], " | demo | 5.00 USD | pending | ") || got[2] != "There are more: --after "+fifth {
		t.Errorf("the list is %q", got)
	}
}

func TestOrderShowPrintsHistoryNoticesAndTransfers(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	ann := g.NewBuyer(t, nil)
	number := ann.TopUp(t, "10.00")
	ann.Notify(t, "refunded", number, "2.00")
	ann.Notify(t, "disputed", number, "8.00")
	ann.Notify(t, "restored", number, "8.00")
	ann.Notify(t, "paid", number, "11.00") // a mismatch: another amount
	type event struct{ Kind, Amount, Status, Reason string }
	got := runJSON[struct {
		order
		TakenWallet string `json:"taken_wallet"`
		History     []event
		Notices     []event
		Mismatches  []event
		Transfers   []struct {
			Kind string
			Legs []struct{ Account, Amount string }
		}
	}](t, g, "order", "show", number)
	if got.TradeNo != number || got.User != ann.UserID || got.Status != "paid" || got.Payment != "pay_"+number || got.Refunded != "2.00" || got.TakenWallet != "2.00" {
		t.Errorf("the order is %+v", got)
	}
	if want := []event{{Status: "pending"}, {Status: "paid"}, {Status: "disputed"}, {Status: "paid"}}; !slices.Equal(got.History, want) {
		t.Errorf("its history is %+v, want %+v", got.History, want)
	}
	if want := []event{{Kind: "paid", Amount: "10.00"}, {Kind: "refunded", Amount: "2.00"}, {Kind: "disputed", Amount: "8.00"}, {Kind: "restored", Amount: "8.00"}}; !slices.Equal(got.Notices, want) {
		t.Errorf("its notices are %+v, want %+v", got.Notices, want)
	}
	if len(got.Mismatches) != 1 || got.Mismatches[0].Reason != "the order is for 10.00" {
		t.Errorf("the mismatches are %+v", got.Mismatches)
	}
	var moved []string
	for _, x := range got.Transfers {
		for _, leg := range x.Legs {
			if strings.HasSuffix(leg.Account, "/wallet") {
				moved = append(moved, x.Kind+" "+leg.Amount)
			}
		}
	}
	if want := []string{"topup 10.00", "refund -2.00", "dispute -8.00", "restore 8.00"}; !slices.Equal(moved, want) {
		t.Errorf("the transfers of the wallet are %q, want %q", moved, want)
	}
	shown := table(t, g, "order", "show", number)
	for _, want := range []string{"order | " + number, "payment | pay_" + number, "STATUS | SINCE", "NOTICE | RECEIVED | AMOUNT | EVENT | PAYMENT | DISPUTE | EFFECT", "TRANSFER | TIME | KIND | ACCOUNT | AMOUNT"} {
		if !slices.Contains(shown, want) {
			t.Errorf("%q is not in %q", want, shown)
		}
	}
	if text := strings.Join(shown, "\n"); !strings.Contains(text, "the order is for 10.00") || !strings.Contains(text, "u/"+ann.UserID+"/wallet | -8.00") {
		t.Errorf("the output is\n%s", text)
	}
	if code, _, stderr := g.Command(t, "", "order", "show", strings.Repeat("A", 32)); code != 3 {
		t.Errorf("an order that does not exist: exit code %d: %s", code, stderr)
	}
	g.Verify(t)
}

func TestAResolvedMismatchIsNotListedAsOpen(t *testing.T) {
	g := gatetest.Start(t, paymentConfig)
	ann, bob := g.NewBuyer(t, nil), g.NewBuyer(t, nil)
	number := ann.TopUp(t, "10.00")
	g.Wait(time.Second)
	ann.Notify(t, "paid", number, "11.00")
	g.Wait(time.Second)
	bob.Notify(t, "refunded", strings.Repeat("B", 32), "3.00") // a mismatch: no such order
	type mismatch struct {
		ID, Kind, User, Order string
		Resolved              *struct {
			Time          int64
			Actor, Reason string
		}
	}
	list := func(flags ...string) (items []mismatch) {
		t.Helper()
		return runJSON[struct{ Items []mismatch }](t, g, append([]string{"wallet", "mismatches"}, flags...)...).Items
	}
	open := list()
	if len(open) != 2 || open[0].Kind != "refunded" || open[0].User != "" || open[1].Kind != "paid" || open[1].User != ann.UserID || open[1].Order != number {
		t.Fatalf("the open mismatches are %+v", open)
	}
	for flags, want := range map[string][]mismatch{
		"--user " + ann.UserID: open[1:], "--user " + bob.UserID: nil, "--provider demo": open, "--provider stripe": nil, "--kind refunded": open[:1], "--kind disputed": nil,
		"--status resolved": nil, "--status all --limit 1": open[:1], "--after " + open[0].ID: open[1:],
	} {
		if got := list(strings.Fields(flags)...); !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", flags, got, want)
		}
	}
	resolve := []string{"mismatch", "resolve", open[1].ID, "--reason", "paid back at the service"}
	if got := runJSON[mismatch](t, g, resolve...); got.ID != open[1].ID || got.Resolved == nil {
		t.Errorf("the resolved mismatch is %+v", got)
	}
	ann.Notify(t, "paid", number, "11.00") // a repeated notice, which creates no second mismatch
	if got := list(); !slices.Equal(got, open[:1]) {
		t.Errorf("the open mismatches are %+v", got)
	}
	if got := list("--status", "resolved"); len(got) != 1 || got[0].Resolved.Reason != "paid back at the service" || got[0].Resolved.Actor != "operator" || got[0].Resolved.Time == 0 {
		t.Errorf("the resolved mismatches are %+v", got)
	}
	if got := list("--status", "all"); len(got) != 2 {
		t.Errorf("all mismatches are %+v", got)
	}
	if got := table(t, g, "wallet", "mismatches", "--status", "all"); len(got) != 3 || got[0] != "ID | TIME | PROVIDER | KIND | USER | TRADE NO | PAYMENT | AMOUNT | REASON | RESOLVED" ||
		!strings.HasSuffix(got[2], " | 11.00 USD | the order is for 10.00 | paid back at the service") {
		t.Errorf("the list is %q", got)
	}
	g.WaitLine(t, func(l gatetest.Line) bool {
		return l.Text("logger") == "modelgate.audit" && l.Text("msg") == "mismatch.resolve" && l.Text("actor") == "operator" && l.Text("user_id") == ann.UserID &&
			strings.HasPrefix(l.Text("detail"), open[1].ID) && l.Text("reason") == "paid back at the service"
	})
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{resolve, 4, "is already resolved: paid back at the service"},
		{[]string{"mismatch", "resolve", "0", "--reason", "x"}, 3, "there is no mismatch"},
		{resolve[:3], 2, "--reason is required"},
	} {
		if code, _, stderr := g.Command(t, "", c.args...); code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: exit code %d: %s", c.args, code, stderr)
		}
	}
	g.Verify(t)
}
