package tasks

import (
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// rate is a class of requests that are counted together.
type rate struct {
	name  string
	admit func(*request) (end func(), refused *fault.Fault) // counts a request until its end
}

const (
	maxWaits         = 128  // concurrent requests of a user that wait for a change
	listsPerMinute   = 300  // of a user: a list by status reads thousands of tasks
	noticesPerMinute = 6000 // from an address
	noticesAtOnce    = 32   // concurrent, from an address

	// bytesPerMinute is how many bytes of bodies of a user may be stored per minute. A task that is
	// submitted and cancelled costs nothing and stays on the disk until it is removed.
	bytesPerMinute = 256 << 20
)

var (
	unlimited = rate{}

	// calls are the requests that count in the rate limits of the key and the user, like a model
	// call without tokens.
	calls = rate{"calls", func(req *request) (func(), *fault.Fault) {
		key, user := auth.Subjects(req.principal, &req.tasks.app.Limits)
		end, refused := req.count(limit.Request{Key: key, User: user})
		if refused != nil {
			return nil, auth.RateLimited(refused)
		}
		return end, nil
	}}

	// lists are counted by user, over all keys.
	lists = rate{"lists", func(req *request) (func(), *fault.Fault) {
		if refused := req.spend("lists", 1, listsPerMinute); refused != nil {
			return nil, fault.New(fault.RateLimited, "your account requests more than %d lists of tasks per minute", listsPerMinute).After(refused.RetryAfter)
		}
		return nil, nil
	}}

	// waits are the requests that wait for a change of a task. They are counted by user.
	waits = rate{"waits", func(req *request) (func(), *fault.Fault) {
		q := query.Of(req.r)
		req.wait = time.Duration(q.Number("wait", 0, 0, int64(task.MaxWait/time.Second))) * time.Second
		if q.Fault != nil || req.wait == 0 {
			return nil, q.Fault
		}
		end, refused := req.count(limit.Request{
			User: limit.Subject{ID: "waits/" + req.principal.UserID, Rates: limit.Rates{Concurrent: maxWaits}}, Concurrent: true,
		})
		if refused != nil {
			return nil, fault.At(fault.RateLimited, "wait", "your account has %d requests with `wait` open; allowed: %d", maxWaits, maxWaits).After(refused.RetryAfter)
		}
		return end, nil
	}}

	// notices are counted by address.
	notices = rate{"notices", func(req *request) (func(), *fault.Fault) {
		end, refused := req.count(limit.Request{
			User:       limit.Subject{ID: "notice/" + auth.Network(req.r), Rates: limit.Rates{Requests: limit.PerMinute(noticesPerMinute), Concurrent: noticesAtOnce}},
			Concurrent: true,
		})
		if refused != nil {
			return nil, fault.New(fault.RateLimited, "too many notices come from this address").After(refused.RetryAfter)
		}
		return end, nil
	}}
)

// count counts a request until end is called.
func (req *request) count(counted limit.Request) (end func(), refused *limit.Refusal) {
	grant, refused := req.runtime.Rates.Admit(time.Now(), counted)
	return func() { grant.End(time.Now(), counted.Units) }, refused
}

// spend counts n against a limit per minute of the user, over all keys.
func (req *request) spend(what string, n, perMinute int64) *limit.Refusal {
	return req.runtime.Rates.Take(time.Now(), what+"/"+req.principal.UserID, n, limit.PerMinute(perMinute))
}
