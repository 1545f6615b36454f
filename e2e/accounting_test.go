package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The operator's view of the money.

// wallet is the balance of a user.
type wallet struct {
	Balance  nano `json:"balance"`
	Held     nano `json:"held"`
	Reserved nano `json:"reserved"`
	Owed     nano `json:"owed"`
}

// entry is an entry of a ledger.
type entry struct {
	Number    int    `json:"number"`
	Kind      string `json:"kind"`
	Amount    nano   `json:"amount"`
	Balance   nano   `json:"balance"`
	Transfer  string `json:"transfer_id"`
	Reference string `json:"reference"`
}

// used is a row of a usage report, or one call.
type used struct {
	Request     string `json:"request_id"`
	Model       string `json:"model"`
	Ended       string `json:"ended"`
	Usage       string `json:"usage"`
	Calls       int    `json:"calls"`
	Tokens      tokens `json:"tokens"`
	Cost        nano   `json:"cost"`
	Uncollected nano   `json:"uncollected"`
}

// change is the answer to a change of a wallet.
type change struct {
	Order string `json:"order"`
}

// mustGet reads an admin route, which must succeed.
func (g *gateway) mustGet(path string, out any) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, "http://"+g.Admin+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	text, err := g.admin(req)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) wallet(user string) (w wallet) {
	g.t.Helper()
	g.mustGet("/modelgate/wallets/"+user, &w)
	return w
}

// walletAtRest returns the wallet of a user after all their calls have been
// charged, which happens shortly after the caller has the answer.
func (g *gateway) walletAtRest(user string) wallet {
	g.t.Helper()
	for deadline := time.Now().Add(waitLimit); ; {
		if w := g.wallet(user); w.Reserved == 0 {
			return w
		} else if time.Now().After(deadline) {
			g.t.Fatalf("%v of %s is still reserved", w.Reserved, user)
		}
		g.verify() // waits until the store has committed all gathered calls
	}
}

// awaitCalls waits until n calls of a user are recorded. A call that costs
// nothing has no reservation before it is recorded.
func (g *gateway) awaitCalls(user string, n int) {
	g.t.Helper()
	for deadline := time.Now().Add(waitLimit); total(g.report(user)).Calls < n; {
		if time.Now().After(deadline) {
			g.t.Fatalf("%d of the %d calls of %s are recorded", total(g.report(user)).Calls, n, user)
		}
		g.verify()
	}
}

// ledger returns the entries of a user's wallet, oldest first, and checks their
// sum.
func (g *gateway) ledger(user string) []entry {
	g.t.Helper()
	var list struct {
		Items []entry `json:"items"`
		Total int     `json:"total"`
	}
	g.mustGet("/modelgate/wallets/"+user+"/ledger?limit=10000", &list)
	if len(list.Items) != list.Total {
		g.t.Fatalf("%d of %d lines were listed", len(list.Items), list.Total)
	}
	lines := make([]entry, 0, list.Total)
	var balance nano
	for i := range list.Items {
		line := list.Items[list.Total-1-i]
		balance += line.Amount
		if line.Number != i+1 || line.Balance != balance {
			g.t.Errorf("line %d of %s is number %d with a balance of %v, want %v", i+1, user, line.Number, line.Balance, balance)
		}
		lines = append(lines, line)
	}
	return lines
}

// sumOf returns the sum of the entries of some kinds.
func sumOf(lines []entry, kinds ...string) (sum nano) {
	for _, line := range lines {
		for _, kind := range kinds {
			if line.Kind == kind {
				sum += line.Amount
			}
		}
	}
	return sum
}

// report returns the usage of a user, grouped by these fields.
func (g *gateway) report(user string, groups ...string) (rows []used) {
	g.t.Helper()
	var list struct {
		Items []used `json:"items"`
	}
	g.mustGet("/modelgate/usage?"+url.Values{"user": {user}, "group": groups}.Encode(), &list)
	return list.Items
}

// total returns the sum of rows.
func total(rows []used) (sum used) {
	for _, row := range rows {
		sum.Calls += row.Calls
		sum.Tokens = sum.Tokens.plus(row.Tokens)
		sum.Cost += row.Cost
		sum.Uncollected += row.Uncollected
	}
	return sum
}

// verify verifies the ledger and all other records.
func (g *gateway) verify() {
	g.t.Helper()
	var found struct {
		Problems []struct{ Where, What string }
	}
	g.post("/modelgate/verify", nil, &found)
	for _, p := range found.Problems {
		g.t.Errorf("verify: %s: %s", p.Where, p.What)
	}
}

// verifyByCommand verifies with the command of an operator. Without arguments
// it verifies the running gateway.
func (g *gateway) verifyByCommand(args ...string) {
	g.t.Helper()
	p := g.command(append([]string{"modelgate", "verify"}, args...)...)
	if code := p.code(waitLimit); code != 0 || !strings.Contains(p.log.String(), "Everything adds up.") {
		g.t.Errorf("verify %q: exit code %d:\n%s", args, code, p.log.tail(10))
	}
}

// gatewayUser is a user of the console.
type gatewayUser struct {
	g     *gateway
	name  string
	key   string // for calls
	token string // for the console
	http  *http.Client
}

// newGatewayUser creates a user with a key and an access token.
func (g *gateway) newGatewayUser(name string) *gatewayUser {
	g.t.Helper()
	c := &gatewayUser{g: g, name: name}
	g.post("/modelgate/users", map[string]any{"name": name}, nil)
	c.key = g.newKey(name).Secret
	var minted issued
	g.post("/modelgate/users/"+name+"/token", nil, &minted)
	c.token = minted.Token
	transport := newTransport(http1)
	transport.MaxIdleConnsPerHost = 64
	g.t.Cleanup(transport.CloseIdleConnections)
	c.http = &http.Client{Transport: g.responseRecorder.over(transport), Timeout: waitLimit}
	return c
}

// tryConsole calls the console. If it returns no error, the gateway has
// acknowledged the change.
func (c *gatewayUser) tryConsole(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(c.g.t.Context(), method, c.g.url(path), bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Success bool            `json:"success"`
		Data    json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || !answer.Success {
		return &refusal{resp.StatusCode, fmt.Sprintf("%s %s %s: %s: %s", method, path, body, resp.Status, text)}
	}
	return json.Unmarshal(answer.Data, out)
}

// mustConsole reads a route of the console, which must succeed.
func (c *gatewayUser) mustConsole(path string, out any) {
	c.g.t.Helper()
	if err := c.tryConsole(http.MethodGet, path, nil, out); err != nil {
		c.g.t.Fatal(err)
	}
}

// calls returns all calls of the user as the console lists them.
func (c *gatewayUser) calls() (calls []used) {
	c.g.t.Helper()
	for p := 1; ; p++ {
		var list struct {
			Items []used `json:"items"`
			Total int    `json:"total"`
		}
		c.mustConsole(fmt.Sprintf("/api/log/self?page_size=100&p=%d", p), &list)
		if calls = append(calls, list.Items...); len(calls) >= list.Total || len(list.Items) == 0 {
			return calls
		}
	}
}

// subscription is a subscription of a user.
type subscription struct {
	ID    int  `json:"subscription_id"`
	Total nano `json:"quota_total"`
	Used  nano `json:"quota_used"`
}

func (c *gatewayUser) subscriptions() (all []subscription) {
	c.g.t.Helper()
	for p := 1; ; p++ {
		var list struct {
			Items []subscription `json:"items"`
			Total int            `json:"total"`
		}
		c.mustConsole(fmt.Sprintf("/api/subscription/self?page_size=100&p=%d", p), &list)
		if all = append(all, list.Items...); len(all) >= list.Total || len(list.Items) == 0 {
			return all
		}
	}
}

// credit adds money to the user's wallet.
func (c *gatewayUser) credit(amount string) {
	c.g.t.Helper()
	c.g.post("/modelgate/wallets/"+c.name+"/credit", map[string]any{"amount": amount, "reason": "a test"}, nil)
}

// tolerant lets customers make concurrent calls although a backend has reported
// more usage than it may.
const tolerant = "\t\tuncollected_tolerance off\n"

// priced returns a site that forwards all calls to the backend and charges for
// them.
func priced(b *backend, more string) site {
	s := forwarding(b)
	s.Log = "INFO" // DEBUG would log too much
	for _, model := range []string{"m-1", "m-2"} {
		s.Money += prices[model].lines(model)
	}
	s.Money += tolerant + more
	return s
}

// callLine is the log line of a call.
type callLine struct {
	Request     string `json:"request_id"`
	Ended       string `json:"ended"`
	Usage       string `json:"usage"`
	Cost        nano   `json:"cost"`
	Uncollected nano   `json:"uncollected"`
}

// callLines returns the log lines of the calls by request id, once there are n.
func (p *process) callLines(n int) map[string]callLine {
	p.t.Helper()
	const mark = `"msg":"call"`
	if !p.log.awaitCount(mark, n) {
		p.t.Fatalf("the log does not have %d calls", n)
	}
	lines := make(map[string]callLine)
	for _, text := range p.log.lines(mark) {
		var line callLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			p.t.Fatalf("%v: %s", err, text)
		}
		if _, twice := lines[line.Request]; twice {
			p.t.Errorf("the call %s is logged twice", line.Request)
		}
		lines[line.Request] = line
	}
	return lines
}
