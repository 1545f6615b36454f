package adminapi

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

// Call is a call as operators see it.
type Call struct {
	ledger.CallInfo
	UserID        string       `json:"user_id"`
	User          string       `json:"user"`                     // the name
	Uncollected   money.Amount `json:"uncollected,omitempty"`    // of its cost
	Backend       string       `json:"backend,omitempty"`        // the address that was asked last
	BackendStatus int          `json:"backend_status,omitempty"` // zero: it gave none
}

func shownCall(c *journal.Call, user string) Call {
	return Call{
		CallInfo: ledger.InfoOf(c), UserID: c.User, User: user, Uncollected: c.Uncollected,
		Backend: c.Backend, BackendStatus: c.Answered,
	}
}

// listCalls lists calls, latest first. The cursor is the id of the last call of the page before.
func listCalls(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	names := map[string]string{user.ID: user.Name}
	if user.ID == "" {
		if names, err = c.userNames(); err != nil {
			return nil, err
		}
	}
	p, match := c.q.PageAfter(), c.callMatch()
	filter := ledger.CallFilter{Key: c.q.Text("key"), Model: c.q.Text("model")}
	filter.From, filter.Until = c.span()
	if p.After != "" {
		at, ok := requestid.Time(p.After)
		if !ok {
			c.q.Refuse("after", "is the id of the last call of the list before")
		}
		if at = at.Add(time.Millisecond); filter.Until.IsZero() || at.Before(filter.Until) {
			filter.Until = at
		}
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	calls, more, err := c.latestCalls(names, filter, p.After, int(p.Limit), match)
	page := Page[Call]{Items: calls}
	if more {
		page.Next = calls[len(calls)-1].RequestID
	}
	return page, err
}

// span returns the times `from` and `to` of the query as a half-open interval. Each is a day or a
// time such as 2026-11-20T14:00:00Z; the interval includes the day `to`. The zero Time means no
// bound.
func (c *call) span() (from, until time.Time) {
	from, until = c.moment("from", 0), c.moment("to", 1)
	if !from.IsZero() && !until.IsZero() && !from.Before(until) {
		c.q.Refuse("to", "must lie after `from`")
	}
	return from, until
}

// moment returns a time of the query. For a day it returns the beginning of the day that is this
// many days later.
func (c *call) moment(param string, days int) time.Time {
	text := c.q.Text(param)
	if text == "" {
		return time.Time{}
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		c.q.Refuse(param, "must be a day such as 2026-11-20 or a time such as 2026-11-20T14:00:00Z")
	}
	return t.AddDate(0, 0, days)
}

var statusPattern = regexp.MustCompile(`^([1-5])(xx|[0-9]{2})$`)

// callMatch returns whether a call has the status and the cost that the query asks for.
func (c *call) callMatch() func(*journal.Call) bool {
	status := c.q.Text("status")
	if status != "" && !statusPattern.MatchString(status) {
		c.q.Refuse("status", "must be a status such as 200, or a class such as 5xx")
	}
	least, err := money.Parse(cmp.Or(c.q.Text("min_cost"), "0"))
	if err != nil {
		c.q.Refuse("min_cost", "%v", err)
	}
	return func(call *journal.Call) bool {
		has := strconv.Itoa(call.Status)
		return call.Cost >= least && (status == "" || status == has || status == has[:1]+"xx")
	}
}

// latestCalls returns the latest calls of the users with these names by id that match, and whether
// there are more. Calls of one millisecond are in the order of their ids, as in the store. The list
// begins behind the call after, if that is not empty.
func (c *call) latestCalls(names map[string]string, filter ledger.CallFilter, after string, limit int, match func(*journal.Call) bool) (latest []Call, more bool, err error) {
	order := func(a, b journal.Call) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.ID, b.ID)) }
	last := journal.Call{ID: after}
	if at, ok := requestid.Time(after); ok {
		last.Time = at.UnixMilli()
	}
	var calls []journal.Call // at most one more than limit
	for user := range names {
		err = c.Ledger.ScanCalls(c.ctx(), user, filter, func(record journal.CallRecord) bool {
			one := record.Call
			if len(calls) > limit && order(one, calls[limit]) > 0 {
				return false // those of this user that follow are older still
			}
			if (after == "" || order(one, last) > 0) && match(&one) {
				at, _ := slices.BinarySearchFunc(calls, one, order)
				calls = slices.Insert(calls, at, one)
				calls = calls[:min(len(calls), limit+1)]
			}
			return true
		})
		if err != nil {
			return nil, false, err
		}
	}
	latest = []Call{}
	for _, one := range calls[:min(len(calls), limit)] {
		latest = append(latest, shownCall(&one, names[one.User]))
	}
	return latest, len(calls) > limit, nil
}

// CallDetail is a call with how its cost came about and what paid for it.
type CallDetail struct {
	Call
	Why       string             `json:"why"`                 // it was charged so
	Breakdown *catalog.Breakdown `json:"breakdown,omitempty"` // of the cost; absent: nothing has a price
	Paid      []CallPayment      `json:"paid"`
}

// CallPayment is what a settlement of a call took from an account.
type CallPayment struct {
	Transfer    journal.ID   `json:"transfer_id"`
	Time        int64        `json:"time"`    // Unix seconds
	Account     string       `json:"account"` // wallet or quota/<subscription>/<start>
	Amount      money.Amount `json:"amount"`
	Settlements int          `json:"settlements"` // in the transfer, of all users
}

func showCall(c *call) (any, error) {
	id := c.path("request")
	names, err := c.userNames()
	if err != nil {
		return nil, err
	}
	record, found, err := c.Ledger.FindCall(c.ctx(), id, slices.Collect(maps.Keys(names)))
	switch {
	case err != nil:
		return nil, err
	case !found:
		if _, own := requestid.Time(id); !own {
			return nil, fault.At(fault.NotFound, "request", "there is no record of a call %q: it is no request id of this gateway. The `_request_id` of an SDK may be the vendor's; the gateway's id is in the header X-Request-Id of the answer", id)
		}
		return nil, fault.At(fault.NotFound, "request", "there is no record of a call %q: it was refused before it reached a backend, is too old, or is no model call; the log has it under this request_id", id)
	}
	shown := CallDetail{Call: shownCall(&record.Call, names[record.User]), Why: why(&record.Call), Paid: make([]CallPayment, len(record.Paid))}
	if shown.Breakdown, err = catalog.ReadBreakdown(record.Breakdown, record.Tokens); err != nil {
		return nil, err
	}
	for i, p := range record.Paid {
		transfer, err := c.Ledger.Transfer(c.ctx(), p.Transfer)
		if err != nil {
			return nil, err
		}
		shown.Paid[i] = CallPayment{p.Transfer, transfer.Time / 1000, p.Account, p.Amount, transfer.Count}
	}
	return shown, nil
}

// rules say what decided the charge of a call whose caller disconnected.
var rules = map[usage.Rule]string{
	usage.Finish:         "the caller disconnected; the call ran on to its end and is charged as if the caller had waited (on_disconnect finish)",
	usage.Cancel:         "the caller disconnected, and the call was cancelled at once (on_disconnect cancel, or the default for such a call)",
	usage.Unsent:         "the caller disconnected before a backend had the whole body; the call was cancelled at once and is free",
	usage.FinishTimeout:  "the caller disconnected, and the call was cancelled after the time of on_disconnect finish",
	usage.FinishLimit:    "the caller disconnected, and the call was cancelled, because too many calls ran on without their callers",
	usage.FinishShutdown: "the caller disconnected, and the call was cancelled by the end of the gateway",
	usage.FailedInput:    "the backend failed before any content; charge_failed_input charges the input",
}

// endings say how a call ended that has no rule.
var endings = map[usage.Ended]string{
	"":                  "the call is under way; this is what is charged so far",
	journal.Crashed:     "the gateway ended in the middle; what was charged until then stays charged",
	usage.Complete:      "the answer is complete",
	usage.ClientGone:    "the caller disconnected",
	usage.Timeout:       "the backend was silent for too long",
	usage.UpstreamError: "the backend failed or broke off",
	usage.MoneyOut:      "the call came to more than there was, and was ended",
	usage.Refused:       "the call was refused, by the backend or before it was reached",
}

// bases say what the charged tokens are.
var bases = map[usage.Basis]string{
	usage.None:      "nothing is charged",
	usage.Reported:  "charged is the usage that the backend reported",
	usage.Estimated: "of input and output, the greater of the tokens that the backend reported and of the estimate is charged",
}

// why returns the rule by which a call was charged, in words.
func why(c *journal.Call) string {
	text := cmp.Or(rules[c.Rule], endings[c.Ended], string(c.Ended))
	basis := bases[c.Usage]
	if c.Usage == usage.Estimated && (c.Ended == usage.Complete || c.Rule == usage.Finish) {
		basis = "input or output that the backend did not report is estimated"
	}
	if basis != "" {
		text += "; " + basis
	}
	if c.Breakdown == "" && c.Usage != usage.None && c.Usage != "" {
		text += "; the model has no price"
	}
	if c.Uncollected > 0 {
		text += "; " + c.Uncollected.String() + " of its cost could not be collected and is the operator's loss"
	}
	return text
}
