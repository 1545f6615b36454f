package adminapi

import (
	"slices"

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
	p := c.q.PageAfter()
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	orders, next, err := c.Billing.ListOrders(c.ctx(), f, p.After, p.Limit)
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, orders, func(o records.Order) string { return o.User })
	shown := make([]Order, len(orders))
	for i, o := range orders {
		shown[i] = Order{o, names[o.User]}
	}
	return Page[Order]{shown, next}, err
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
	for i, x := range d.Booked {
		legs := make([]OrderLeg, len(x.Legs))
		for j, leg := range x.Legs {
			legs[j] = OrderLeg{leg.Account, leg.Amount}
		}
		shown.Transfers[i] = OrderTransfer{x.ID, x.Time / 1000, x.Kind, legs}
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

// namesOfMismatches returns the names of the users of some mismatches, of the administrators who have
// resolved them, and of one more user.
func (c *call) namesOfMismatches(list []*records.MismatchRecord, more string) (map[string]string, error) {
	ids := []string{more}
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
	f := billing.MismatchFilter{User: user.ID, Provider: c.q.Text("provider")}
	if kind := c.q.Word("kind", "all", "paid", "failed", "refunded", "disputed", "restored", "ignored"); kind != "all" {
		f.Kind = kind
	}
	status := c.q.Word("status", "open", "resolved", "all")
	f.Open, f.Resolved = status == "open", status == "resolved"
	p := c.q.PageAfter()
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	list, next, err := c.Billing.Mismatches(c.ctx(), f, p.After, p.Limit)
	if err != nil {
		return nil, err
	}
	names, err := c.namesOfMismatches(list, "")
	return Page[Mismatch]{shownMismatches(list, names), next}, err
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
