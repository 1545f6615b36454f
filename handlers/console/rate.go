package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rate is a class of requests that are counted together: by user, or by address if the
// caller is unauthenticated. Log-ins are always counted by address.
type rate string

const (
	reads     rate = "reads"
	writes    rate = "writes"
	callbacks rate = "callbacks"
	openPages rate = "pages"
	logins    rate = "log-ins"
	notices   rate = "webhooks"
)

// callbacksPerMinute is how many requests of a user may make the gateway send a callback to
// an address of the user's choice.
const callbacksPerMinute = 60

// perMinute is how many requests of a class are answered in a minute.
func (c *Console) perMinute(class rate) int64 {
	switch class {
	case reads:
		return c.Reads
	case writes:
		return c.Writes
	case callbacks:
		return callbacksPerMinute
	case openPages:
		return c.Pages
	case logins:
		return c.Logins
	}
	return c.Webhooks
}

// anonymousAtOnce is how many requests of a class one address may have open before they are
// authenticated. A slow body counts until it is read.
const anonymousAtOnce = 32

// admit counts the request. Unauthenticated requests count as concurrent, too.
func (req *request) admit(class rate) *fault.Fault {
	whose, rates := auth.Network(req.r), limit.Rates{Requests: limit.PerMinute(req.console.perMinute(class)), Concurrent: anonymousAtOnce}
	anonymous := req.account == nil
	if !anonymous && class != logins {
		whose = req.owner()
	}
	grant, refused := req.runtime.Rates.Admit(req.runtime.Store.Now(), limit.Request{
		User:       limit.Subject{ID: "console/" + string(class) + "/" + whose, Rates: rates},
		Concurrent: anonymous,
	})
	switch {
	case refused == nil:
	case refused.What == limit.Concurrent:
		return fault.New(fault.RateLimited, "at most %d %s of one address are read at once", anonymousAtOnce, class).After(refused.RetryAfter)
	default:
		return fault.New(fault.RateLimited, "at most %d %s are answered per minute", rates.Requests.Limit, class).After(refused.RetryAfter)
	}
	req.grant = grant
	if !anonymous {
		req.endGrant()
	}
	return nil
}

// endGrant ends the count among the concurrent unauthenticated requests: the caller is
// authenticated, or the request has ended.
func (req *request) endGrant() { req.grant.End(req.runtime.Store.Now(), 0) }

// owner returns the id under which the requests and bodies of an authenticated caller are
// counted. A caller with a half-open session is not counted under the id of the user.
func (req *request) owner() string {
	if req.account.HalfOpen {
		return req.account.Credential
	}
	return req.account.UserID
}
