package console_test

import (
	"encoding/csv"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/money"
)

// table returns the rows of a CSV file, by the names of its columns.
func table(t testing.TB, file string) (rows []map[string]string) {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil || len(lines) == 0 {
		t.Fatalf("the file is no CSV: %v\n%s", err, file)
	}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, name := range lines[0] {
			row[name] = line[i]
		}
		rows = append(rows, row)
	}
	return rows
}

func parsed(t testing.TB, text string) money.Amount {
	t.Helper()
	amount, err := money.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return amount
}

// TestThePaymentsAndTheReceiptsEqualTheLedger applies refunds and disputes of the same money, in both
// orders, and compares the figures of each page, route and file with the entries of the ledger.
func TestThePaymentsAndTheReceiptsEqualTheLedger(t *testing.T) {
	a := administer(t)
	b, _ := withRole(t, a.Gate, "finance")
	payments := map[string]string{a.orders[0]: "pay_evt_1", a.orders[1]: "pay_evt_d"}
	follow := func(kind, id, tradeNo, amount string) {
		t.Helper()
		dispute := ""
		if kind != "refunded" {
			dispute = `"dispute":"dp_` + tradeNo + `",`
		}
		body := fmt.Sprintf(`{"id":%q,"type":%q,"data":{"trade_no":%q,"payment":%q,%s"amount":%q,"currency":"USD"}}`, id, kind, tradeNo, payments[tradeNo], dispute, amount)
		if got := a.Do(t, "POST", hook, signed(id, body, a.Now()), body); got.Status != 200 {
			t.Fatalf("the notice is answered %d %s", got.Status, got.Body)
		}
	}
	pay := func(id string) string {
		t.Helper()
		tradeNo := read1[order](t, a.browser, "/api/user/demo/pay", `{"amount":"40.00"}`).TradeNo
		a.notify(t, id, tradeNo)
		payments[tradeNo] = "pay_" + id
		return tradeNo
	}
	first, second, third, early := a.orders[0], pay("evt_b"), pay("evt_c"), a.orders[1]
	follow("refunded", "r1", first, "30.00")
	follow("disputed", "d1", first, "20.00") // of which 10.00 had been refunded
	follow("disputed", "d2", second, "25.00")
	follow("refunded", "r2", second, "30.00")
	follow("restored", "s2", second, "25.00") // the refund of the same money remains
	follow("disputed", "d3", third, "40.00")
	follow("restored", "s3", third, "40.00")
	follow("refunded", "r4", early, "5.00")
	follow("disputed", "d4", early, "40.00")
	a.notify(t, "evt_d", early) // the payment arrives last
	a.Verify(t)

	ledger := map[string]money.Amount{} // what left the service's accounts, by kind
	byOrder := map[string]map[string]money.Amount{}
	for _, leg := range table(t, b.visitsPlain(t, "/api/admin/ledger").Body) {
		if !strings.HasPrefix(leg["account"], "s/paid/") {
			continue
		}
		ledger[leg["kind"]] += parsed(t, leg["amount"])
		if byOrder[leg["reference"]] == nil {
			byOrder[leg["reference"]] = map[string]money.Amount{}
		}
		byOrder[leg["reference"]][leg["kind"]] += parsed(t, leg["amount"])
	}
	if ledger["refund"] == 0 || ledger["dispute"] == 0 || ledger["restore"] == 0 {
		t.Fatalf("the ledger has %v", ledger)
	}
	net := -ledger["topup"] - ledger["refund"] - ledger["dispute"] - ledger["restore"]

	var totals struct {
		Totals []struct{ Paid, Refunded, Disputed, Restored, Net string }
	}
	into(t, b.does(t, "GET", "/api/admin/orders?totals=true", ""), &totals)
	var receipts struct {
		Items, Totals []struct{ Gross, Refunds, Disputes, Restored, Net string }
	}
	into(t, b.does(t, "GET", "/api/admin/payments?totals=true", ""), &receipts)
	want := []string{(-ledger["topup"]).String(), ledger["refund"].String(), ledger["dispute"].String(), (-ledger["restore"]).String(), net.String()}
	for _, got := range totals.Totals {
		if shown := []string{got.Paid, got.Refunded, got.Disputed, got.Restored, got.Net}; !slices.Equal(shown, want) {
			t.Errorf("the payments have %q, the ledger %q", shown, want)
		}
	}
	if len(receipts.Totals) != 1 {
		t.Errorf("the receipts have the totals %v", receipts.Totals)
	}
	for _, got := range append(receipts.Items, receipts.Totals...) {
		if shown := []string{got.Gross, got.Refunds, got.Disputes, got.Restored, got.Net}; !slices.Equal(shown, want) {
			t.Errorf("the receipts have %q, the ledger %q", shown, want)
		}
	}
	// Both pages show these figures, one beside the other.
	cells := regexp.MustCompile(`class="num">(?:<strong>)?([\d.,]+)(?: USD)?(?:</strong>)?</td>`)
	for path, skip := range map[string]int{"/console/admin/orders": 2, "/console/admin/receipts": 1} {
		var shown []string
		for _, cell := range cells.FindAllStringSubmatch(b.page(t, path).Body, -1) {
			shown = append(shown, cell[1])
		}
		if !slices.Equal(shown[skip:skip+len(want)], want) {
			t.Errorf("%s shows %q, the ledger has %q", path, shown, want)
		}
	}
	// Each line of the file, and each page of an order.
	for _, line := range table(t, b.visitsPlain(t, "/api/admin/orders?format=csv").Body) {
		has := byOrder[line["trade_no"]]
		kept := money.Amount(0)
		for _, amount := range maps.All(has) {
			kept -= amount
		}
		got := []string{line["refunded"], line["disputed"], line["restored"], line["net"]}
		if want := []string{has["refund"].String(), has["dispute"].String(), (-has["restore"]).String(), kept.String()}; !slices.Equal(got, want) {
			t.Errorf("the file has %q for %s, the ledger %q", got, line["trade_no"], want)
		}
	}
	for path, by := range map[string]*browser{"/console/admin/orders/": b, "/console/orders/": a.browser} {
		shows(t, by.page(t, path+first), 200, "<dt>Refunded</dt><dd>30.00 USD</dd>", "<dt>Disputed</dt><dd>10.00 USD</dd>")
		shows(t, by.page(t, path+second), 200, "<dt>Refunded</dt><dd>15.00 USD</dd>", "<dt>Disputed</dt><dd>25.00 USD</dd>", "<dt>Given back</dt><dd>10.00 USD</dd>")
	}
}

// TestUsageByKeyNamesTheKeyAndItsUser makes a call and a task on the pages, and reads the report by key.
func TestUsageByKeyNamesTheKeyAndItsUser(t *testing.T) {
	a := administer(t)
	done := a.browser.submitsByPage(t, "image", "done")
	a.browser.untilShown(t, done, "success")
	own := read[struct {
		Console string `json:"console_key_id"`
	}](t, a.browser, "/api/user/self")
	for _, role := range []string{"finance", "support"} {
		b, _ := withRole(t, a.Gate, role)
		page := b.page(t, "/console/admin/usage?group=key")
		for _, key := range a.customer.keys {
			shows(t, page, 200, key.ID, "<bdi>&lt;b&gt;שלום&lt;/b&gt; &amp; 😀</bdi>")
		}
		shows(t, page, 200, ">"+a.customer.name+"<", own.Console, ">Console<", "Tasks that are made on the pages belong to it.")
		found := map[string]bool{}
		for _, row := range table(t, b.visitsPlain(t, "/api/admin/usage?group=key&format=csv").Body) {
			found[row["key_id"]] = true
			if row["user"] != a.customer.name || row["user_id"] != a.id || (row["key_name"] == "") != (row["console_key"] == "true") || (row["console_key"] == "true") != (row["key_id"] == own.Console) {
				t.Errorf("a line of the file is %v", row)
			}
		}
		if len(found) < 2 || !found[own.Console] {
			t.Errorf("the file has the keys %v", found)
		}
	}
	b, _ := withRole(t, a.Gate, "support")
	shows(t, b.page(t, "/console/admin/tasks/"+a.task), 200, ">Console<", own.Console)
}
