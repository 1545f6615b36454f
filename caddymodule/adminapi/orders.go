package adminapi

import (
	"cmp"
	"encoding/csv"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/money"
)

// Order is an order with the name of its user.
type Order struct {
	records.Order
	UserName string `json:"user_name,omitempty"`
}

// OrderDetail is an order with its notices, mismatches and transfers.
type OrderDetail struct {
	Order
	Page        string                 `json:"page,omitempty"` // the service's id of the payment page
	TakenWallet money.Amount           `json:"taken_wallet"`   // taken from the wallet by refunds and disputes
	TakenOwed   money.Amount           `json:"taken_owed"`     // booked as a receivable
	History     []records.StatusChange `json:"history"`
	Notices     []records.OrderNotice  `json:"notices"`    // that were applied
	Mismatches  []Mismatch             `json:"mismatches"` // notices that do not fit the order or its status
	Transfers   []OrderTransfer        `json:"transfers"`
}

// OrderTransfer is a transfer of the ledger that an order has caused.
type OrderTransfer struct {
	ID   journal.ID   `json:"transfer_id"`
	Time int64        `json:"time"` // Unix seconds
	Kind journal.Kind `json:"kind"`
	Legs []OrderLeg   `json:"legs"`
}

// OrderLeg is the change of one account by a transfer.
type OrderLeg struct {
	Account journal.Account `json:"account"`
	Amount  money.Amount    `json:"amount"`
}

func shownTransfer(x *journal.Transfer) OrderTransfer {
	legs := make([]OrderLeg, len(x.Legs))
	for i, leg := range x.Legs {
		legs[i] = OrderLeg{leg.Account, leg.Amount}
	}
	return OrderTransfer{x.ID, x.Time / 1000, x.Kind, legs}
}

func listOrders(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	f := billing.OrderFilter{User: user.ID, Provider: c.q.Text("provider")}
	if status := c.q.Word("status", "all", "pending", "paid", "failed", "expired", "refunded", "disputed", "review"); status != "all" {
		f.Status = []records.OrderStatus{records.OrderStatus(status)}
	}
	f.From, f.Until = c.span()
	f.Payment, f.ByPaid = c.q.Text("payment"), c.q.Word("time", "created", "paid") == "paid"
	p, totals, asCSV := c.q.PageAfter(), c.q.Flag("totals"), c.q.Word("format", "json", "csv") == "csv"
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	if asCSV {
		return c.streamed("a list of orders", "text/csv; charset=utf-8", func(w io.Writer) error { return c.writeOrders(w, f) }), nil
	}
	orders, next, err := c.ordersOf(f, p.After, p.Limit)
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, orders, func(o records.Order) string { return o.User })
	if err != nil {
		return nil, err
	}
	shown := OrderPage{Page: Page[Order]{make([]Order, len(orders)), next}}
	for i, o := range orders {
		shown.Items[i] = Order{o, names[o.User]}
	}
	if totals {
		shown.Totals, shown.TotalsPartial, err = c.orderTotals(f)
	}
	return shown, err
}

// OrderPage is a part of a list of orders. It has the totals of the list if the request has `totals`.
type OrderPage struct {
	Page[Order]
	Totals []OrderTotal `json:"totals,omitempty"`

	// TotalsPartial is set if the list has more than maxTotalled orders: the totals are of the latest.
	TotalsPartial bool `json:"totals_partial,omitempty"`
}

// maxTotalled is the maximum number of orders whose sums an answer has. A report on payments and a CSV file
// have all.
const maxTotalled = 5000

// errEnough ends a scan.
var errEnough = errors.New("the scan has read enough")

// OrderTotal has the sums of the orders of a list in one currency. The amounts that were moved are those
// of the ledger.
type OrderTotal struct {
	Currency string       `json:"currency"`
	Orders   int64        `json:"orders"`
	Amount   money.Amount `json:"amount"` // of all orders
	Paid     money.Amount `json:"paid"`   // of those that were paid
	Refunded money.Amount `json:"refunded"`
	Disputed money.Amount `json:"disputed"`
	Restored money.Amount `json:"restored"`
	Net      money.Amount `json:"net"` // paid - refunded - disputed + restored
}

// ordersOf returns a part of a list of orders. The store finds the id of a payment only together with
// its service, so ordersOf tries each configured service if the filter names none.
func (c *call) ordersOf(f billing.OrderFilter, after string, limit int64) (orders []records.Order, next string, err error) {
	if f.Payment == "" || f.Provider != "" {
		return c.Billing.ListOrders(c.ctx(), f, after, limit)
	}
	for _, f.Provider = range c.app.Payments() {
		found, _, err := c.Billing.ListOrders(c.ctx(), f, "", limit)
		if err != nil {
			return nil, "", err
		}
		orders = append(orders, found...)
	}
	return orders, "", nil
}

// scanOrders calls fn for each order of a list, latest first, until fn returns an error.
func (c *call) scanOrders(f billing.OrderFilter, fn func(records.Order) error) error {
	const batch = 500 // orders that are read in one transaction
	for after := ""; ; {
		orders, next, err := c.ordersOf(f, after, batch)
		for _, o := range orders {
			if err == nil {
				err = fn(o)
			}
		}
		if err != nil || next == "" {
			return err
		}
		after = next
	}
}

// orderTotals returns the sums of the latest maxTotalled orders of a list, by currency, and whether the list
// has more.
func (c *call) orderTotals(f billing.OrderFilter) (_ []OrderTotal, partial bool, _ error) {
	all, read := make(sums[OrderTotal]), 0
	err := c.scanOrders(f, func(o records.Order) error {
		if read++; read > maxTotalled {
			return errEnough
		}
		sum := all.of(OrderTotal{Currency: o.Currency})
		sum.Orders++
		sum.Amount += o.Amount
		if o.PaidAt > 0 {
			sum.Paid += o.Amount
		}
		sum.Refunded += o.Refunded
		sum.Disputed += o.Disputed
		sum.Restored += o.Restored
		sum.Net += o.Net()
		return nil
	})
	totals := all.sorted(func(a, b OrderTotal) int { return cmp.Compare(a.Currency, b.Currency) })
	if partial = errors.Is(err, errEnough); partial {
		err = nil
	}
	return totals, partial, err
}

// writeOrders writes a list of orders as CSV.
func (c *call) writeOrders(w io.Writer, f billing.OrderFilter) error {
	names, err := c.userNames()
	if err != nil {
		return err
	}
	out := csv.NewWriter(w)
	_ = out.Write([]string{"trade_no", "created_at", "paid_at", "user_id", "user", "provider", "payment", "status", "amount", "refunded", "disputed", "restored", "net", "currency"})
	err = c.scanOrders(f, func(o records.Order) error {
		_ = out.Write([]string{
			o.TradeNo, csvTime(o.Created), csvTime(o.PaidAt), o.User, PlainCell(names[o.User]), o.Provider, PlainCell(o.Payment), string(o.Status),
			o.Amount.String(), o.Refunded.String(), o.Disputed.String(), o.Restored.String(), o.Net().String(), o.Currency,
		})
		return out.Error()
	})
	out.Flush()
	return cmp.Or(err, out.Error())
}

// csvTime returns a time in Unix seconds as RFC 3339; 0 is empty.
func csvTime(seconds int64) string {
	if seconds == 0 {
		return ""
	}
	return time.Unix(seconds, 0).UTC().Format(time.RFC3339)
}

func showOrder(c *call) (any, error) {
	d, err := c.Billing.OrderDetail(c.ctx(), c.path("order"))
	if err != nil {
		return nil, err
	}
	names, err := c.namesOfMismatches(d.Mismatches, d.User)
	now := c.Store.Now()
	shown := OrderDetail{
		Order: Order{d.Show(now), names[d.User]}, Page: d.Page, TakenWallet: d.TakenWallet, TakenOwed: d.TakenOwed,
		History: d.Changes(now), Notices: append([]records.OrderNotice{}, d.Notices...),
		Mismatches: shownMismatches(d.Mismatches, names), Transfers: make([]OrderTransfer, len(d.Booked)),
	}
	for i := range d.Booked {
		shown.Transfers[i] = shownTransfer(&d.Booked[i])
	}
	return shown, err
}

// Mismatch is a mismatch with its id and the names of its user and of the administrator who has
// resolved it.
type Mismatch struct {
	ID string `json:"id"`
	records.Mismatch
	UserName   string `json:"user_name,omitempty"`
	ResolvedBy string `json:"resolved_by,omitempty"`
}

// namesOfMismatches returns names by user id: those of the users of some mismatches, of the
// administrators who have resolved them, and of userID. An empty userID is left out.
func (c *call) namesOfMismatches(list []*records.MismatchRecord, userID string) (map[string]string, error) {
	ids := []string{userID}
	for _, m := range list {
		ids = append(ids, m.User)
		if m.Resolved != nil {
			ids = append(ids, m.Resolved.Actor)
		}
	}
	return c.Directory.Names(c.ctx(), slices.Values(ids))
}

func shownMismatches(list []*records.MismatchRecord, names map[string]string) []Mismatch {
	shown := make([]Mismatch, len(list))
	for i, m := range list {
		shown[i] = Mismatch{ID: m.Digest(), Mismatch: m.Mismatch, UserName: names[m.User]}
		if m.Resolved != nil {
			shown[i].ResolvedBy = names[m.Resolved.Actor] // the operator has none
		}
	}
	return shown
}

func listMismatches(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	f := billing.MismatchFilter{User: user.ID, Provider: c.q.Text("provider"), Payment: c.q.Text("payment")}
	if kind := c.q.Word("kind", "all", "paid", "failed", "refunded", "disputed", "restored", "ignored"); kind != "all" {
		f.Kind = kind
	}
	status := c.q.Word("status", "open", "resolved", "all")
	f.Open, f.Resolved = status == "open", status == "resolved"
	p := c.q.PageAfter()
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	list, next, err := c.mismatchesOf(f, p.After, p.Limit)
	if err != nil {
		return nil, err
	}
	names, err := c.namesOfMismatches(list, "")
	return Page[Mismatch]{shownMismatches(list, names), next}, err
}

// mismatchesOf returns a part of a list of mismatches. As in ordersOf, the store finds the id of a payment
// only together with its service.
func (c *call) mismatchesOf(f billing.MismatchFilter, after string, limit int64) (list []*records.MismatchRecord, next string, err error) {
	if f.Payment == "" || f.Provider != "" {
		return c.Billing.Mismatches(c.ctx(), f, after, limit)
	}
	for _, f.Provider = range c.app.Payments() {
		found, _, err := c.Billing.Mismatches(c.ctx(), f, "", limit)
		if err != nil {
			return nil, "", err
		}
		list = append(list, found...)
	}
	return list, "", nil
}

func resolveMismatch(c *call) (any, error) {
	m, err := c.Billing.Resolve(c.ctx(), c.actor, c.path("id"), c.reason)
	if err != nil {
		return nil, err
	}
	one := []*records.MismatchRecord{m}
	names, err := c.namesOfMismatches(one, "")
	return shownMismatches(one, names)[0], err
}
