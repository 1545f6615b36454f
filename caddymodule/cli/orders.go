package cli

import (
	"cmp"
	"fmt"
	"text/tabwriter"

	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
)

// orderCommands, listMismatches and mismatchCommands are the commands for orders and mismatches.
var (
	orderCommands = command{use: "order", short: "Orders, by which users top up their wallets", subcommands: []command{
		{
			use: "list", short: "Lists orders, latest first", request: "GET /modelgate/orders", paged: true, print: printOrders,
			flags: append([]flag{
				userFlag, providerFlag, fromFlag, toFlag,
				paymentFlag,
				{name: "time", value: "created", help: "The time that --from and --to select by: created or paid"},
				{name: "status", value: "all", help: "Only those that are pending, paid, failed, expired, refunded, disputed or review"},
			}, pageFlags("The last order of the previous list; continues after it")...),
		},
		{use: "show <order>", short: "Shows an order with its notices and transfers", request: "GET /modelgate/orders/{order}", print: printOrder},
	}}

	listMismatches = command{
		use: "mismatches", short: "Lists the signed notices of payment services that match no order and credited nothing",
		request: "GET /modelgate/mismatches", paged: true, print: printMismatches,
		flags: append([]flag{
			userFlag, providerFlag, paymentFlag,
			{name: "kind", value: "all", help: "Only notices of this kind: paid, failed, refunded, disputed, restored or ignored"},
			{name: "status", value: "open", help: "Only those that are open or resolved; or all"},
		}, pageFlags("The last mismatch of the previous list; continues after it")...),
	}

	mismatchCommands = command{use: "mismatch", short: "Notices of payment services that match no order", subcommands: []command{
		{
			use: "resolve <id>", short: "Records that a mismatch is resolved, and the reason",
			request: "POST /modelgate/mismatches/{id}/resolve", print: printMismatches, flags: []flag{reasonFlag("audit log, and with the mismatch")},
		},
	}}

	userFlag     = flag{name: "user", value: "", help: "Only those of this user"}
	providerFlag = flag{name: "provider", value: "", help: "Only those of this payment service"}
	paymentFlag  = flag{name: "payment", value: "", help: "Only those of this payment, by its id at the payment service"}
)

var printOrders = rows("ORDER\tUSER\tPROVIDER\tAMOUNT\tSTATUS\tOPENED\tPAID\tPAYMENT\tREFUNDED\tDISPUTED\tRESTORED", func(o *adminapi.Order) []any {
	return []any{
		o.TradeNo, cmp.Or(o.UserName, o.User), o.Provider, o.Amount.String() + " " + o.Currency, o.Status,
		moment(o.Created), moment(o.PaidAt), dash(o.Payment), o.Refunded, o.Disputed, o.Restored,
	}
})

var printOrder = decoded(func(w *tabwriter.Writer, o *adminapi.OrderDetail) {
	fmt.Fprintf(w, "order\t%s\nuser\t%s, %s\nprovider\t%s\nstatus\t%s\n", o.TradeNo, dash(o.UserName), o.User, o.Provider, o.Status)
	fmt.Fprintf(w, "payment\t%s\ncheckout\t%s\n", dash(o.Payment), dash(o.Page))
	fmt.Fprintf(w, "amount\t%v %s\nrefunded\t%v\ndisputed\t%v\nrestored\t%v\n", o.Amount, o.Currency, o.Refunded, o.Disputed, o.Restored)
	fmt.Fprintf(w, "taken back\t%v from the wallet, %v as owed\n", o.TakenWallet, o.TakenOwed)
	fmt.Fprintf(w, "opened\t%s\nexpires\t%s\npaid\t%s\n", moment(o.Created), moment(o.ExpiresAt), moment(o.PaidAt))
	fmt.Fprintln(w, "\nSTATUS\tSINCE")
	for _, change := range o.History {
		fmt.Fprintln(w, row(change.Status, moment(change.Time)))
	}
	fmt.Fprintln(w, "\nNOTICE\tRECEIVED\tAMOUNT\tEVENT\tPAYMENT\tDISPUTE\tEFFECT")
	for _, n := range o.Notices {
		fmt.Fprintln(w, row(n.Kind, moment(n.Time), n.Amount, dash(n.Event), dash(n.Payment), dash(n.Dispute), "applied"))
	}
	for _, m := range o.Mismatches {
		fmt.Fprintln(w, row(dash(string(m.Kind)), moment(m.Time/1000), m.Amount, dash(m.Event), dash(m.Payment), dash(m.Dispute), "none, mismatch "+m.ID+": "+m.Reason))
	}
	fmt.Fprintln(w, "\nTRANSFER\tTIME\tKIND\tACCOUNT\tAMOUNT")
	for _, x := range o.Transfers {
		for _, leg := range x.Legs {
			fmt.Fprintln(w, row(x.ID, moment(x.Time), x.Kind, leg.Account, leg.Amount))
		}
	}
})

var printMismatches = rows("ID\tTIME\tPROVIDER\tKIND\tUSER\tTRADE NO\tPAYMENT\tAMOUNT\tREASON\tRESOLVED", func(m *adminapi.Mismatch) []any {
	m.Resolved = cmp.Or(m.Resolved, new(records.Resolution))
	return []any{
		m.ID, moment(m.Time / 1000), m.Provider, dash(string(m.Kind)), dash(cmp.Or(m.UserName, m.User)), dash(m.TradeNo), dash(m.Payment),
		m.Amount.String() + " " + m.Currency, m.Reason, dash(m.Resolved.Reason),
	}
})
