package adminapi

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// Found is something that a text names.
type Found struct {
	Kind   string `json:"kind"` // user, key, order, mismatch or transfer
	ID     string `json:"id"`   // of a mismatch: the payment's
	UserID string `json:"user_id,omitempty"`
	User   string `json:"user,omitempty"`
	KeyRef
	Hint string `json:"hint,omitempty"` // of a key
}

// FoundList is what a text names, and whether there is more of it.
type FoundList struct {
	Items []Found `json:"items"`
	More  bool    `json:"more,omitempty"`
}

// The forms of the texts that name an order, a payment and a transfer.
var (
	orderText    = regexp.MustCompile(`^[0-9A-Za-z]{6,32}$`)
	paymentText  = regexp.MustCompile(`[0-9_-]`) // a payment id is no word
	transferText = regexp.MustCompile(`^[0-9a-f]{32}$`)
)

// find returns what a text names: users by name, id or e-mail address, keys by id, hint or name, orders by
// number, orders and mismatches by payment id, and transfers by id. Each is found by an index, and at most
// limit of a kind are read. Names and numbers may be given by their beginning. Finance does not find users
// by their addresses.
func find(c *call) (any, error) {
	text, limit := strings.TrimSpace(c.q.Text("text")), c.q.PageAfter().Limit
	if text != credential.Shortened(text) {
		c.q.Refuse("text", "must not be a secret; send the first characters of a key and `…`, such as sk-vRkt…")
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	found := FoundList{Items: []Found{}}
	if text == "" {
		return found, nil
	}
	lookups := []func(*call, string, int64, *FoundList) error{findUsers, findKeys, findPayments, findTransfer}
	if strings.HasPrefix(text, "key_") || strings.HasPrefix(text, string(credential.APIKey)) {
		lookups = lookups[1:2]
	}
	for _, lookup := range lookups {
		if err := lookup(c, text, limit, &found); err != nil {
			return nil, err
		}
	}
	names, err := namesOf(c, found.Items, func(f Found) string { return f.UserID })
	for i, f := range found.Items {
		found.Items[i].User = names[f.UserID]
	}
	return found, err
}

func findUsers(c *call, text string, limit int64, found *FoundList) error {
	users, next, err := c.Directory.Search(c.ctx(), text, "", limit)
	found.More = found.More || next != ""
	if err == nil && strings.Contains(text, "@") && c.role != identity.Finance {
		byEmail, more, failed := c.Directory.FindByEmail(c.ctx(), text, int(limit))
		users, err, found.More = append(users, byEmail...), failed, found.More || more
	}
	for _, user := range users {
		hit := Found{Kind: "user", ID: user.ID, UserID: user.ID}
		if !slices.Contains(found.Items, hit) {
			found.Items = append(found.Items, hit)
		}
	}
	return err
}

func findKeys(c *call, text string, limit int64, found *FoundList) error {
	keys, more, err := c.Directory.FindKeys(c.ctx(), text, int(limit))
	found.More = found.More || more
	for _, key := range keys {
		found.Items = append(found.Items, Found{Kind: "key", ID: key.ID, UserID: key.UserID, KeyRef: KeyRef{KeyName: key.Name, ConsoleKey: key.Console}, Hint: key.Hint})
	}
	return err
}

func findPayments(c *call, text string, limit int64, found *FoundList) error {
	if number := strings.TrimRight(text, ".…"); orderText.MatchString(number) {
		orders, more, err := c.Billing.FindOrders(c.ctx(), number, limit)
		if err != nil {
			return err
		}
		found.More = found.More || more
		for _, o := range orders {
			found.Items = append(found.Items, Found{Kind: "order", ID: o.TradeNo, UserID: o.User})
		}
	}
	if !paymentText.MatchString(text) {
		return nil
	}
	orders, _, err := c.ordersOf(billing.OrderFilter{Payment: text}, "", limit)
	for _, o := range orders {
		found.Items = append(found.Items, Found{Kind: "order", ID: o.TradeNo, UserID: o.User})
	}
	if err != nil || len(orders) > 0 {
		return err
	}
	list, _, err := c.mismatchesOf(billing.MismatchFilter{Payment: text}, "", 1)
	for _, m := range list {
		found.Items = append(found.Items, Found{Kind: "mismatch", ID: text, UserID: m.User})
	}
	return err
}

func findTransfer(c *call, text string, _ int64, found *FoundList) error {
	if !transferText.MatchString(text) {
		return nil
	}
	x, err := c.transfer(text)
	if err == nil && x.Kind != "" {
		found.Items = append(found.Items, Found{Kind: "transfer", ID: text, UserID: x.User})
	}
	return err
}

// transfer returns the transfer with this id; the zero Transfer if there is none.
func (c *call) transfer(id string) (x journal.Transfer, err error) {
	var parsed journal.ID
	if parsed.UnmarshalText([]byte(id)) != nil {
		return x, nil
	}
	return c.Ledger.Transfer(c.ctx(), parsed)
}

// TransferDetail is a transfer of the ledger with its user and its cause.
type TransferDetail struct {
	OrderTransfer
	UserID    string `json:"user_id,omitempty"`
	User      string `json:"user,omitempty"`
	Reference string `json:"reference,omitempty"` // the order, the subscription, the task or the hold that it is for
	Actor     string `json:"actor,omitempty"`     // who caused it, if not the user
	ActorName string `json:"actor_name,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Count     int    `json:"count,omitempty"` // number of settled calls
}

// showTransfer shows a transfer without its memo accounts, so that its amounts have the sum zero.
func showTransfer(c *call) (any, error) {
	x, err := c.transfer(c.path("transfer"))
	if err == nil && x.Kind == "" {
		err = fault.At(fault.NotFound, "transfer", "there is no transfer %q", c.path("transfer"))
	}
	if err != nil {
		return nil, err
	}
	x.Legs = slices.DeleteFunc(x.Legs, func(leg journal.Leg) bool { return leg.Account.Memo() })
	about, err := c.Ledger.About(c.ctx(), &x)
	if err != nil {
		return nil, err
	}
	names, err := c.Directory.Names(c.ctx(), slices.Values([]string{x.User, x.Actor}))
	return TransferDetail{
		OrderTransfer: shownTransfer(&x), UserID: x.User, User: names[x.User], Reference: about,
		Actor: x.Actor, ActorName: names[x.Actor], Reason: x.Reason, Count: x.Count,
	}, err
}
