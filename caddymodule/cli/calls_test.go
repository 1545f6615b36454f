package cli_test

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// ruled is a price with conditions.
const ruled = `
	price ruled {
		input 3.00
		output 15.00
		request 0.01
		context 1000
		max_output 100
		above 200 {
			input 6.00
		}
		tier flex x0.5
		geo us x1.1
		call web_search 0.002
	}
`

const messageAnswer = `{"type":"message","content":[{"type":"text","text":"x"}],"usage":{"input_tokens":7,"output_tokens":3}}`

// message makes a model call, waits until its record is durable and returns its request id.
func message(t *testing.T, g *gatetest.Gate, key gatetest.Key, model string, status int) string {
	t.Helper()
	body := `{"model":"` + model + `","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}`
	got := g.Do(t, http.MethodPost, "/v1/messages", "X-Api-Key: "+key.Secret+"\nAnthropic-Version: 2023-06-01\nContent-Type: application/json", body)
	if got.Status != status {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	return gatetest.Eventually(t, "the record of the call", func() (string, bool) {
		found, _ := g.Admin(t, http.MethodGet, "/modelgate/calls/"+got.RequestID(), nil)
		return got.RequestID(), found == http.StatusOK
	})
}

type callList struct {
	Items []struct {
		ID   string `json:"request_id"`
		User string
	}
	Next string
}

func (l callList) ids() (ids []string) {
	for _, c := range l.Items {
		ids = append(ids, c.ID)
	}
	return ids
}

// listed sorts the ids of calls like a list: the latest first, calls of one millisecond
// by id.
func listed(ids []string) []string {
	return slices.SortedFunc(slices.Values(ids), func(a, b string) int {
		first, _ := requestid.Time(a)
		second, _ := requestid.Time(b)
		return cmp.Or(second.Compare(first), cmp.Compare(a, b))
	})
}

func TestCallsCanBeFiltered(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied})
	var keys [2]gatetest.Key
	for i := range keys {
		keys[i] = g.NewKey(t, nil)
		g.Credit(t, keys[i].UserID, "1.00")
	}
	g.Backend.On("cheap", gatetest.JSON(http.StatusOK, messageAnswer))
	g.Backend.On("costly", gatetest.JSON(http.StatusOK, strings.Replace(messageAnswer, `"output_tokens":3`, `"output_tokens":9`, 1)))
	g.Backend.On("broken", gatetest.JSON(http.StatusInternalServerError, `{"type":"error","error":{"type":"api_error","message":"x"}}`))
	var made []string
	for i, model := range []string{"cheap", "costly", "cheap", "broken", "cheap"} {
		status := http.StatusOK
		if model == "broken" {
			status = http.StatusInternalServerError
		}
		made = append(made, message(t, g, keys[i%2], model, status))
	}
	ids := listed(made)
	of := func(numbers ...int) (some []string) {
		for _, n := range numbers {
			some = append(some, made[n])
		}
		return listed(some)
	}
	day := g.Now().UTC().Format(time.DateOnly)
	for flags, want := range map[string][]string{
		"":                                    ids,
		"--user " + keys[1].UserID:            of(1, 3),
		"--key " + keys[0].ID:                 of(0, 2, 4),
		"--model costly":                      of(1),
		"--status 500":                        of(3),
		"--status 2xx":                        of(0, 1, 2, 4),
		"--min-cost 0.00009":                  of(1),
		"--from " + day + " --to " + day + "": ids,
		"--to " + day + "T00:00:00Z":          nil,
		"--to 2026-01-01":                     nil,
		"--from " + day + "T00:00:00Z --model none": nil,
		"--limit 2":                   ids[:2],
		"--limit 2 --after " + ids[1]: ids[2:4],
		"--after " + ids[4]:           nil,
	} {
		got := runJSON[callList](t, g, append([]string{"call", "list"}, strings.Fields(flags)...)...)
		if !slices.Equal(got.ids(), want) {
			t.Errorf("%s lists %v, want %v", flags, got.ids(), want)
		}
		if more := strings.Contains(flags, "--limit 2"); (got.Next != "") != more || more && got.Next != want[1] {
			t.Errorf("%s: the next page is after %q", flags, got.Next)
		}
	}
	for flags, message := range map[string]string{
		"--status ok": "a status such as 200", "--status 600": "a status such as 200", "--min-cost x": "not a decimal number",
		"--from today": "a day such as", "--after call_1": "the last call of the previous page", "--user nobody": "no user",
	} {
		if code, _, stderr := g.Command(t, "", append([]string{"call", "list"}, strings.Fields(flags)...)...); code < 3 || !strings.Contains(stderr, message) {
			t.Errorf("%s: exit code %d: %s", flags, code, stderr)
		}
	}
	if got := table(t, g, "call", "list", "--model", "costly"); len(got) != 2 || !strings.HasPrefix(got[0], "TIME | REQUEST | USER") || !strings.HasSuffix(got[1], " | costly | 200 | complete | 7 | 9 | 0.000097") {
		t.Errorf("the list is %q", got)
	}
}

func TestCallsOfOneMillisecondArePagedCompletely(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig, Site: gatetest.Proxied})
	var users [3]string
	for i := range users {
		users[i] = g.NewKey(t, nil).UserID
	}
	now := time.Now()
	var made []string
	err := gatetest.Runtime(t).Store.Update(t.Context(), func(txn storage.Txn) error {
		for i := range 60 { // 40 in one millisecond and 20 in the millisecond before
			at := now.Add(-time.Duration(i/40) * time.Millisecond)
			c := journal.CallRecord{Call: journal.Call{ID: requestid.At(at), Time: at.UnixMilli(), User: users[i%3], Status: http.StatusOK, Ended: usage.Complete}}
			key := c.StoreKey(journal.CallPrefix)
			if err := txn.Set(key, c.Encode(key), now.Add(journal.DefaultRetention)); err != nil {
				return err
			}
			if err := (journal.Usage{Day: c.Day(), User: c.User, Calls: 1}).Count(txn); err != nil {
				return err
			}
			made = append(made, c.ID)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{7, 20, 40, 60, 100} {
		var got []string
		for after := []string(nil); ; {
			page := runJSON[callList](t, g, append([]string{"call", "list", "--limit", strconv.Itoa(size)}, after...)...)
			if got = append(got, page.ids()...); page.Next == "" || len(got) > len(made) {
				break
			}
			after = []string{"--after", page.Next}
		}
		if !slices.Equal(got, listed(made)) {
			t.Errorf("pages of %d list %v", size, got)
		}
	}
}

func TestCallShowPrintsTheStepsOfTheCharge(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig + ruled, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	g.Backend.On("ruled", gatetest.JSON(http.StatusOK, strings.Replace(messageAnswer, `"input_tokens":7`,
		`"service_tier":"flex","inference_geo":"us","server_tool_use":{"web_search_requests":2},"input_tokens":301`, 1)))
	id := message(t, g, key, "ruled", http.StatusOK)
	got := table(t, g, "call", "show", id)
	for _, want := range []string{
		"request | " + id, "model | ruled", "route | messages", "backend | " + g.Backend.Address + ", answered 200", "status | 200", "ended | complete",
		"why | the answer is complete; the charge is for the usage that the backend reported",
		"prompt above 200 tokens | its prices", "tier flex | x0.50", "geo us | x1.10",
		"input | 301 | 6.00 per million | 0.0009933", "output | 3 | 15.00 per million | 0.00002475",
		"rounded up | 0.00101805", "request | 1 | 0.01 | 0.01", "call web_search | 2 | 0.002 | 0.004", "total | 0.01501805", "charged | 0.01501805",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, strings.Join(got, "\n"))
		}
	}
	line := runJSON[struct {
		Items []struct {
			Transfer string   `json:"transfer_id"`
			Requests []string `json:"request_ids"`
		}
	}](t, g, "wallet", "ledger", key.UserID).Items[0]
	if !slices.Equal(line.Requests, []string{id}) || !strings.HasPrefix(got[len(got)-1], "wallet | 0.01501805 | ") || !strings.HasSuffix(got[len(got)-1], " | "+line.Transfer+" | 1") {
		t.Errorf("the payment is %q, the ledger has %+v", got[len(got)-1], line)
	}

	// The steps do not change when the price changes.
	if err := g.Reload(gatetest.Config{App: salesConfig + strings.Replace(ruled, "input 3.00", "input 4.00", 1), Site: gatetest.Proxied}); err != nil {
		t.Fatal(err)
	}
	if again := table(t, g, "call", "show", id); !slices.Equal(again, got) {
		t.Errorf("after a change of the price the output is %q", again)
	}
	for none, ours := range map[string]bool{"req_011CSHoEeqs5C35K2UUqR7Fy": false, "req_" + strings.Repeat("A", 26): true, "key_1": false} {
		code, _, stderr := g.Command(t, "", "call", "show", none)
		if code != 3 || !strings.Contains(stderr, "no record of a call") || ours == strings.Contains(stderr, "may be the vendor's; the gateway's id is in the header X-Request-Id") {
			t.Errorf("%s: exit code %d: %s", none, code, stderr)
		}
	}
}

func TestCallShowPrintsTheReasonOfTheCharge(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: salesConfig + "charge_failed_input on\n", Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	for name, c := range map[string]struct {
		script http.HandlerFunc
		status int
		want   []string
	}{
		"unreported": {gatetest.JSON(http.StatusOK, `{"type":"message","content":[{"type":"text","text":"x"}]}`), 200, []string{"the answer is complete", "the backend did not report"}},
		"refused":    {gatetest.JSON(http.StatusBadRequest, `{"type":"error","error":{"type":"invalid_request_error","message":"x"}}`), 400, []string{"was refused", "nothing is charged"}},
		"failed":     {gatetest.Body(http.StatusOK, "text/html", "<html>down</html>"), 200, []string{"charge_failed_input charges the input"}},
	} {
		g.Backend.On(name, c.script)
		shown := runJSON[struct {
			Why    string
			Status int `json:"backend_status"`
		}](t, g, "call", "show", message(t, g, key, name, c.status))
		for _, want := range c.want {
			if !strings.Contains(shown.Why, want) || shown.Status != c.status {
				t.Errorf("%s: %+v lacks %q", name, shown, want)
			}
		}
	}
}

func TestUserShowPrintsMoneySessionsAndLatestRecords(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += salesConfig + gatetest.Selling[:strings.Index(gatetest.Selling, "plan 1")] + "base_url http://127.0.0.1:PORT\n"
	config.Site += "\nmodelgate_console\n"
	g := gatetest.Start(t, config)
	g.Command(t, gatetest.Password, "user", "create", "ann", "--password-stdin")
	key := g.NewKey(t, map[string]any{"user": "ann"})
	g.Credit(t, "ann", "100.00")
	runJSON[struct{}](t, g, "user", "limit", "ann", "--budget", "50", "--reset", "day")
	runJSON[struct{}](t, g, "subscription", "grant", "ann", "1", "--reason", "a present")
	cookie := g.Login(t, "ann", gatetest.Password)
	g.Post(t, cookie, "/api/user/demo/pay", `{"amount":"5.00"}`)
	g.Backend.On("cheap", gatetest.JSON(http.StatusOK, messageAnswer))
	id := message(t, g, key, "cheap", http.StatusOK)
	made := gatetest.Submit(t, key)

	shown := runJSON[struct {
		Name          string
		Limits        struct{ Budget string }
		Wallet        struct{ Balance, Held, Owed string }
		Preference    string
		Budget        struct{ Limit, Used string }
		Keys          int
		Subscriptions []struct {
			Quota string `json:"quota_total"`
			Used  string `json:"quota_used"`
			Held  string `json:"quota_held"`
		}
		Sessions []struct{ Address string }
		Calls    []struct {
			ID string `json:"request_id"`
		}
		Tasks []struct {
			ID string `json:"task_id"`
		}
		Orders []struct{ Status, Amount string }
	}](t, g, "user", "show", "ann")
	if shown.Name != "ann" || shown.Limits.Budget != "50.00" || shown.Wallet.Balance != "100.00" || shown.Wallet.Owed != "0.00" || shown.Preference != "subscription_first" ||
		shown.Budget.Limit != "50.00" || shown.Keys != 1 || len(shown.Subscriptions) != 1 || shown.Subscriptions[0].Used != "0.000037" || shown.Subscriptions[0].Held == "" ||
		len(shown.Sessions) != 1 || shown.Sessions[0].Address == "" || len(shown.Calls) != 1 || shown.Calls[0].ID != id || len(shown.Tasks) != 1 || shown.Tasks[0].ID != made ||
		len(shown.Orders) != 1 || shown.Orders[0].Status != "pending" || shown.Orders[0].Amount != "5.00" {
		t.Errorf("the user is %+v", shown)
	}
	got := strings.Join(table(t, g, "user", "show", "ann"), "\n")
	for _, want := range []string{"ann", "Money\n", "of 50.00 used", "Keys in force: 1.", "Subscriptions\n", "1 Starter | active | 12.00", "Sessions\n", "Latest calls\n", id, "Latest tasks\n", made, "Unsettled orders\n", "5.00 USD | pending"} {
		if !strings.Contains(got, want) {
			t.Errorf("the output lacks %q:\n%s", want, got)
		}
	}
	runJSON[struct{}](t, g, "user", "create", "bob")
	got = strings.Join(table(t, g, "user", "show", "bob"), "\n")
	for _, none := range []string{"Subscriptions: none", "Sessions: none", "Latest calls: none", "Latest tasks: none", "Unsettled orders: none"} {
		if !strings.Contains(got, none) {
			t.Errorf("user show of a new user prints\n%s", got)
		}
	}
}

func TestLedgerLinesNameTheirSubject(t *testing.T) {
	s := gatetest.NewMockService(t)
	config := s.Config("")
	config.App += salesConfig + gatetest.Selling[:strings.Index(gatetest.Selling, "plan 1")] + "base_url http://127.0.0.1:PORT\n"
	config.Site += gatetest.Console
	g := gatetest.Start(t, config)
	buyer := g.NewBuyer(t, nil)
	order := buyer.TopUp(t, "30.00")
	subscription := buyer.Buy(t, 1)
	began := g.Now().UTC()
	g.Backend.On("cheap", gatetest.JSON(http.StatusOK, messageAnswer))
	id := message(t, g, buyer.Key, "cheap", http.StatusOK) // paid by the quota
	s.SetState(gatetest.JobDone)
	made := gatetest.Submit(t, buyer.Key)
	g.Until(t, made, task.Success)

	day, end := began.Format(time.DateOnly), began.AddDate(0, 1, 0).Format(time.DateOnly)
	span := fmt.Sprintf("subscription %d, %s to %s", subscription, day, end)
	lines := func(account ...string) (all string) {
		for _, line := range table(t, g, append([]string{"wallet", "ledger", buyer.UserID}, account...)...) {
			all += strings.TrimSuffix(line, " |") + "\n"
		}
		return all
	}
	if got := lines(); !strings.Contains(got, " | "+order+"\n") || !strings.Contains(got, " | purchase | -9.90 | 0.00 | 20.10 | "+span+"\n") {
		t.Errorf("the wallet has\n%s", got)
	}
	quota := fmt.Sprintf("quota/%d", subscription)
	got := lines("--account", quota+"/"+day)
	for _, want := range []string{" | calls | -0.000037 | 0.00 | 11.999963 | " + id, " | purchase | 12.00 | 0.00 | 12.00 | " + span, " | hold | 0.00 | ", " | settle | -0.80 | -0.80 | "} {
		if !strings.Contains(got, want) {
			t.Errorf("the quota lacks %q:\n%s", want, got)
		}
	}
	if n := strings.Count(got, " | "+made+"\n"); n != 2 {
		t.Errorf("%d lines name the task:\n%s", n, got)
	}
	for _, same := range []string{quota, fmt.Sprintf("%s/%s", quota, began.AddDate(1, 0, 0).Format(time.DateOnly))} {
		if other := lines("--account", same); other != got {
			t.Errorf("%s has\n%s", same, other)
		}
	}
	answer := runJSON[struct {
		Account string
		Items   []struct {
			Kind         string
			Task         string `json:"task_id"`
			Subscription int64  `json:"subscription_id"`
			From         int64  `json:"period_start"`
		}
	}](t, g, "wallet", "ledger", buyer.UserID, "--account", quota)
	if !strings.HasPrefix(answer.Account, quota+"/") || answer.Items[0].Task != made || answer.Items[len(answer.Items)-1].Subscription != subscription || answer.Items[len(answer.Items)-1].From == 0 {
		t.Errorf("the JSON is %+v", answer)
	}
	for account, message := range map[string]string{
		quota + "/2020-01-01": "began only on " + day, "quota/77": "there is no subscription 77", quota + "/2020-13-01": "wallet, receivable or quota/",
	} {
		if code, _, stderr := g.Command(t, "", "wallet", "ledger", buyer.UserID, "--account", account); code < 3 || !strings.Contains(stderr, message) {
			t.Errorf("%s: exit code %d: %s", account, code, stderr)
		}
	}
	g.Verify(t)
}
