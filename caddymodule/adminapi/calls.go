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
	"github.com/caddy-modelgate/modelgate/internal/identity"
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
	Uncollected   money.Amount `json:"uncollected,omitempty"`    // part of the cost
	Backend       string       `json:"backend,omitempty"`        // the address of the last request
	BackendStatus int          `json:"backend_status,omitempty"` // zero: the backend did not answer
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
		if names, err = c.callers(c.q.Text("key")); err != nil {
			return nil, err
		}
	}
	p, match := c.q.PageAfter(), c.callMatch()
	filter := ledger.CallFilter{Key: c.q.Text("key"), Model: c.q.Text("model")}
	filter.From, filter.Until = c.span()
	if p.After != "" {
		at, ok := requestid.Time(p.After)
		if !ok {
			c.q.Refuse("after", "must be the id of the last call of the previous page")
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

// callers returns the names of the users who can have made calls with a key, by id: its owner. Without a
// key, and for a key that was dropped, they are all users.
func (c *call) callers(key string) (map[string]string, error) {
	if key != "" {
		found, _, err := c.Directory.FindKeys(c.ctx(), key, 1)
		if err != nil {
			return nil, err
		}
		if len(found) == 1 && found[0].ID == key {
			return namesOf(c, found, func(k identity.KeyMatch) string { return k.UserID })
		}
	}
	return c.userNames()
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

// callMatch returns a function that reports whether a call has the status and the cost of the query.
func (c *call) callMatch() func(*journal.Call) bool {
	status := c.q.Text("status")
	if status != "" && !statusPattern.MatchString(status) {
		c.q.Refuse("status", "must be a status such as 200, or a class such as 5xx")
	}
	minCost, err := money.Parse(cmp.Or(c.q.Text("min_cost"), "0"))
	if err != nil {
		c.q.Refuse("min_cost", "%v", err)
	}
	return func(call *journal.Call) bool {
		has := strconv.Itoa(call.Status)
		return call.Cost >= minCost && (status == "" || status == has || status == has[:1]+"xx")
	}
}

// latestCalls returns the latest calls that match, and whether there are more. names has the users
// of the calls, by id. Calls of one millisecond are in the order of their ids, as in the store. If
// after is not empty, the list begins behind the call with this id.
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
				return false // the remaining calls of this user are older
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

// CallDetail is a call with the calculation of its cost and its payments.
type CallDetail struct {
	Call
	Why       string               `json:"why"`                 // the reason for the charge
	Breakdown *catalog.Breakdown   `json:"breakdown,omitempty"` // of the cost; absent: the call has no price
	Paid      []ledger.CallPayment `json:"paid"`
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
	shown := CallDetail{Call: shownCall(&record.Call, names[record.User]), Why: why(&record.Call)}
	if shown.Breakdown, err = catalog.ReadBreakdown(record.Breakdown, record.Tokens); err != nil {
		return nil, err
	}
	shown.Paid, err = c.Ledger.PaymentsOf(c.ctx(), &record)
	return shown, err
}

// rules are the explanations of the rules that decide a charge.
var rules = map[usage.Rule]string{
	usage.Finish:         "the caller disconnected; the call continued to its end and is charged as if the caller had waited (on_disconnect finish)",
	usage.Cancel:         "the caller disconnected, and the call was cancelled at once (on_disconnect cancel, or the default for such a call)",
	usage.Unsent:         "the caller disconnected before a backend had the whole body; the call was cancelled at once and is free",
	usage.FinishTimeout:  "the caller disconnected, and the call was cancelled after the time of on_disconnect finish",
	usage.FinishLimit:    "the caller disconnected, and the call was cancelled, because too many calls of disconnected callers were running",
	usage.FinishShutdown: "the caller disconnected, and the call was cancelled by the shutdown of the gateway",
	usage.FailedInput:    "the backend failed before any content; charge_failed_input charges the input",
}

// endings are the explanations of the endings of calls without a rule.
var endings = map[usage.Ended]string{
	"":                  "the call is in flight; this is the charge so far",
	journal.Crashed:     "the gateway ended during the call; the charge until then remains",
	usage.Complete:      "the answer is complete",
	usage.ClientGone:    "the caller disconnected",
	usage.Timeout:       "the backend was silent for too long",
	usage.UpstreamError: "the backend failed or broke off",
	usage.MoneyOut:      "the call was ended, because its cost exceeded the available money",
	usage.Refused:       "the call was refused, by the backend or by the gateway",
}

// bases are the explanations of the charged usage.
var bases = map[usage.Basis]string{
	usage.None:      "nothing is charged",
	usage.Reported:  "the charge is for the usage that the backend reported",
	usage.Estimated: "the charge is for the larger of the reported and the estimated tokens, for input and for output",
}

// why returns the rule by which a call was charged, in words.
func why(c *journal.Call) string {
	text := cmp.Or(rules[c.Rule], endings[c.Ended], string(c.Ended))
	basis := bases[c.Usage]
	if c.Usage == usage.Estimated && (c.Ended == usage.Complete || c.Rule == usage.Finish) {
		basis = "the gateway estimated the input or output that the backend did not report"
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
