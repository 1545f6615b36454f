package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/money"
)

var printCalls = rows("TIME\tREQUEST\tUSER\tKEY\tMODEL\tSTATUS\tENDED\tINPUT\tOUTPUT\tCOST", func(c *adminapi.Call) []any {
	return []any{
		moment(c.Time), c.RequestID, dash(c.User), c.KeyID, dash(c.Model), c.Status, dash(string(c.Ended)),
		c.Tokens.AllInput(), c.Tokens.AllOutput(), c.Cost,
	}
})

// printCall prints a call, the calculation of its cost, and its payments.
var printCall = decoded(func(w *tabwriter.Writer, c *adminapi.CallDetail) {
	backend := dash(c.Backend)
	if c.BackendStatus != 0 {
		backend += fmt.Sprintf(", answered %d", c.BackendStatus)
	}
	stream := ""
	if c.Stream {
		stream = ", a stream"
	}
	for _, line := range [][2]string{
		{"request", c.RequestID},
		{"time", moment(c.Time)},
		{"user", fmt.Sprintf("%s (%s), key %s", dash(c.User), c.UserID, c.KeyID)},
		{"model", dash(c.Model)},
		{"route", c.Route + stream},
		{"backend", backend},
		{"status", fmt.Sprint(c.Status)},
		{"ended", dash(string(c.Ended))},
		{"took", fmt.Sprintf("%d ms, the first byte %d ms", c.Duration, c.FirstByte)},
		{"why", c.Why},
	} {
		fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	fmt.Fprintln(w)
	if c.Breakdown != nil {
		printBreakdown(w, c.Breakdown)
		if shown := c.Cost + c.Uncollected; shown < c.Breakdown.Total {
			fmt.Fprintf(w, "above the limits of the call\t\t\t-%v\n", c.Breakdown.Total-shown)
		}
		if c.Uncollected > 0 {
			fmt.Fprintf(w, "uncollected\t\t\t%v\n", c.Uncollected)
		}
	}
	fmt.Fprintf(w, "charged\t\t\t%v\n", c.Cost)
	if len(c.Paid) > 0 {
		fmt.Fprintln(w, "\nPAID FROM\tAMOUNT\tTIME\tTRANSFER\tSETTLEMENTS IN IT")
	}
	for _, p := range c.Paid {
		fmt.Fprintln(w, row(p.Account, p.Amount, moment(p.Time), p.Transfer, p.Settlements))
	}
})

// printBreakdown prints the steps that lead to a cost.
func printBreakdown(w *tabwriter.Writer, b *catalog.Breakdown) {
	fmt.Fprintln(w, "STEP\tCOUNT\tPRICE\tCOST")
	for _, part := range b.Parts {
		if part.Pass != "" {
			fmt.Fprintf(w, "%s by %s\t\t\t\n", part.Pass, dash(part.Model))
		}
		if part.Above != 0 {
			fmt.Fprintf(w, "prompt above %d tokens\t\tits prices\t\n", part.Above)
		}
		for _, rule := range []struct {
			word, name string
			factor     fmt.Stringer
			has        bool
		}{{"tier", part.Tier, part.TierFactor, part.TierFactor != 0}, {"geo", part.Geo, part.GeoFactor, part.GeoFactor != 0}} {
			switch {
			case rule.name == "":
			case rule.has:
				fmt.Fprintf(w, "%s %s\t\tx%v\t\n", rule.word, dash(rule.name), rule.factor)
			default:
				fmt.Fprintf(w, "%s %s\t\tits prices\t\n", rule.word, dash(rule.name))
			}
		}
		for _, item := range part.Tokens {
			fmt.Fprintf(w, "%s\t%d\t%v per million\t%s\n", item.Kind, item.Tokens, item.Price, item.Cost)
		}
	}
	if b.Unlisted != "" {
		fmt.Fprintf(w, "%s is not in the price\t\tthe most expensive one\t\n", dash(b.Unlisted))
	}
	if b.Sum != b.Rounded.String() {
		fmt.Fprintf(w, "sum\t\t\t%s\n", b.Sum)
	}
	fmt.Fprintf(w, "rounded up\t\t\t%v\n", b.Rounded)
	if b.Request != 0 {
		fmt.Fprintf(w, "request\t1\t%v\t%v\n", b.Request, b.Request)
	}
	for _, tool := range b.Tools {
		name := "call " + dash(tool.Tool)
		if strings.HasPrefix(tool.Tool, catalog.UnitPrefix) {
			name = dash(tool.Tool)
		}
		fmt.Fprintf(w, "%s\t%d\t%v\t%v\n", name, tool.Uses, tool.Price, money.Amount(tool.Uses)*tool.Price)
	}
	fmt.Fprintf(w, "total\t\t\t%v\n", b.Total)
}

var (
	printSessions = rows("SESSION\tOPENED\tSEEN\tENDS\tFROM\tBROWSER", func(s *identity.Session) []any {
		return []any{s.ID, moment(s.Created), moment(s.Seen), moment(s.Expires), dash(s.Address), dash(s.Agent)}
	})
	printUnsettled = rows("ORDER\tPROVIDER\tAMOUNT\tSTATUS\tOPENED\tENDS", func(o *adminapi.Order) []any {
		return []any{o.TradeNo, o.Provider, o.Amount.String() + " " + o.Currency, o.Status, moment(o.Created), moment(o.ExpiresAt)}
	})
)

// printUser prints a user and the records of the user, each kind in a table.
func printUser(w *tabwriter.Writer, c *call, answer []byte) error {
	var u adminapi.UserDetail
	if json.Unmarshal(answer, &u) != nil {
		return errNotAdmin
	}
	budget := "none"
	if u.Budget != nil {
		budget = fmt.Sprintf("%v of %v used", u.Budget.Used, u.Budget.Limit)
		if u.Budget.ResetsAt != 0 {
			budget += ", until " + moment(u.Budget.ResetsAt)
		}
	}
	notes := fmt.Sprintf("Budget: %s. Preference: %s. Keys in force: %d.", budget, u.Preference, u.Keys)
	if r := u.Restricted; r != nil {
		notes += fmt.Sprintf("\nCalls are restricted: %v is uncollected, %v was charged in the last 24 hours. Each call reserves the\n"+
			"whole context, one at a time, until %s or until less is uncollected.", r.Uncollected, r.Charged, moment(r.Until))
	}
	if u.LockedUntil != 0 {
		notes += fmt.Sprintf("\nLog-ins by password are locked until %s: too many attempts.", moment(u.LockedUntil))
	}
	for _, table := range []struct {
		title string
		items any
		n     int
		print printer
	}{
		{"", []adminapi.User{u.User}, 1, printUsers},
		{"Money", []adminapi.Wallet{u.Wallet}, 1, printWallet},
		{notes, nil, 0, nil},
		{"Subscriptions", u.Subscriptions, len(u.Subscriptions), printSubscriptions},
		{"Sessions", u.Sessions, len(u.Sessions), printSessions},
		{"Latest calls", u.Calls, len(u.Calls), printCalls},
		{"Latest tasks", u.Tasks, len(u.Tasks), printTasks},
		{"Unsettled orders", u.Orders, len(u.Orders), printUnsettled},
	} {
		switch {
		case table.print == nil:
			fmt.Fprintf(w, "\n%s\n", table.title)
			continue
		case table.n == 0:
			fmt.Fprintf(w, "\n%s: none\n", table.title)
			continue
		case table.title != "":
			fmt.Fprintf(w, "\n%s\n", table.title)
		}
		items, err := json.Marshal(map[string]any{"items": table.items})
		if err != nil {
			return err
		}
		if err := table.print(w, c, items); err != nil {
			return err
		}
	}
	return nil
}

var printLines = rows("TIME\tKIND\tAMOUNT\tHELD\tBALANCE\tREFERENCE\tREASON", func(l *adminapi.LedgerLine) []any {
	return []any{moment(l.Time), l.Kind, l.Amount, l.Held, l.Balance, about(l), l.Reason}
})

// about returns the reference of an entry: calls, subscription, task or order.
func about(l *adminapi.LedgerLine) string {
	day := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.DateOnly) }
	const shown = 3 // requests in a cell; --json has all
	switch n := len(l.Requests); {
	case n > shown:
		return fmt.Sprintf("%s and %d more", strings.Join(l.Requests[:shown], ", "), n-shown)
	case n > 0:
		return strings.Join(l.Requests, ", ")
	case l.Count > 0:
		return counted(l.Count, "settlement", "settlements")
	case l.Subscription != 0:
		return fmt.Sprintf("subscription %d, %s to %s", l.Subscription, day(l.From), day(l.Until))
	}
	return l.Reference
}
