package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rate is a class of requests that are counted together: by user if the caller is authenticated,
// else by address. Log-ins are always counted by address.
type rate string

const (
	reads     rate = "reads"
	writes    rate = "writes"
	callbacks rate = "callbacks"
	pages     rate = "pages"
	logins    rate = "log-ins"
	notices   rate = "webhooks"
)

// callbacksPerMinute is how many requests of a user may have the gateway send something to an
// address that the user names, so that the gateway cannot be used to flood others.
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
	case pages:
		return c.Pages
	case logins:
		return c.Logins
	}
	return c.Webhooks
}

// unauthenticatedAtOnce is how many requests of a class one address may have open while their
// senders are not authenticated. A body that arrives slowly takes a place until it is read.
const unauthenticatedAtOnce = 32

// admit counts the request. Requests of callers who are not authenticated count as concurrent too.
func (v *visit) admit(class rate) *fault.Fault {
	whose, rates := auth.Network(v.r), limit.Rates{Requests: limit.PerMinute(v.console.perMinute(class)), Concurrent: unauthenticatedAtOnce}
	anonymous := v.account == nil
	if !anonymous && class != logins {
		whose = v.owner()
	}
	grant, refused := v.runtime.Rates.Admit(v.runtime.Store.Now(), limit.Request{
		User:       limit.Subject{ID: "console/" + string(class) + "/" + whose, Rates: rates},
		Concurrent: anonymous,
	})
	switch {
	case refused == nil:
	case refused.What == limit.Concurrent:
		return fault.New(fault.RateLimited, "%d %s of one address are read at once", unauthenticatedAtOnce, class).After(refused.RetryAfter)
	default:
		return fault.New(fault.RateLimited, "%d %s a minute are answered", rates.Requests.Limit, class).After(refused.RetryAfter)
	}
	v.grant = grant
	if !anonymous {
		v.proved()
	}
	return nil
}

// proved ends what the request takes of the concurrent ones: its sender is authenticated, or it has
// ended.
func (v *visit) proved() { v.grant.End(v.runtime.Store.Now(), 0) }

// owner returns the id for which the requests and bodies of an authenticated caller are
// counted. A caller that has proved only the password is not counted for the user.
func (v *visit) owner() string {
	if v.account.HalfOpen {
		return v.account.Credential
	}
	return v.account.UserID
}
