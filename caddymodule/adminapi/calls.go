package adminapi

import (
	"cmp"
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

// listCalls lists calls, latest first. The cursor is the id of a call. With a filter, a page may have few
// calls or none, and yet a cursor: see [ledger.Ledger.LatestCalls].
func listCalls(c *call) (any, error) {
	user, err := c.userOf(c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	p, match := c.q.PageAfter(), c.callMatch()
	filter := ledger.CallFilter{Key: c.q.Text("key"), Model: c.q.Text("model")}
	filter.From, filter.Until = c.span()
	if _, ok := requestid.Time(p.After); p.After != "" && !ok {
		c.q.Refuse("after", "must be the id of the last call of the previous page")
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	if user.ID == "" && filter.Key != "" { // only its owner can have made calls with it
		if user.ID, err = c.ownerOf(filter.Key); err != nil {
			return nil, err
		}
	}
	calls, next, err := c.latestCalls(user.ID, filter, p.After, int(p.Limit), match)
	return Page[Call]{calls, next}, err
}

// ownerOf returns the id of the owner of a key; empty if the key was dropped.
func (c *call) ownerOf(key string) (string, error) {
	found, _, err := c.Directory.FindKeys(c.ctx(), key, 1)
	if err != nil || len(found) == 0 || found[0].ID != key {
		return "", err
	}
	return found[0].UserID, nil
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

// latestCalls is [ledger.Ledger.LatestCalls] with the names of the users.
func (c *call) latestCalls(user string, filter ledger.CallFilter, after string, limit int, match func(*journal.Call) bool) ([]Call, string, error) {
	list, next, err := c.Ledger.LatestCalls(c.ctx(), user, filter, after, limit, match)
	if err != nil {
		return nil, "", err
	}
	names, err := namesOf(c, list, func(r journal.CallRecord) string { return r.User })
	shown := make([]Call, len(list))
	for i := range list {
		shown[i] = shownCall(&list[i].Call, names[list[i].User])
	}
	return shown, next, err
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
	record, found, err := c.Ledger.FindCall(c.ctx(), id, "")
	switch {
	case err != nil:
		return nil, err
	case !found:
		if _, own := requestid.Time(id); !own {
			return nil, fault.At(fault.NotFound, "request", "there is no record of a call %q: it is no request id of this gateway. The `_request_id` of an SDK may be the vendor's; the gateway's id is in the header X-Request-Id of the answer", id)
		}
		return nil, fault.At(fault.NotFound, "request", "there is no record of a call %q: it was refused before it reached a backend, is too old, or is no model call; the log has it under this request_id", id)
	}
	names, err := c.Directory.Names(c.ctx(), slices.Values([]string{record.User}))
	if err != nil {
		return nil, err
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
