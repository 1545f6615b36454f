package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rate is a class of requests that are counted together: by user where there is
// one, else by address, and log-ins always by address.
type rate string

const (
	reads     rate = "reads"
	writes    rate = "writes"
	callbacks rate = "callbacks"
	pages     rate = "pages"
	logins    rate = "log-ins"
	notices   rate = "webhooks"
)

// callbacksPerMinute is how many requests of a user may send something to an
// address that he names: the gateway is nobody's cannon.
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

// strangersAtOnce is how many requests of a class one address may have under way
// while it is not known who sends them: who sends a body slowly takes a place
// until it is read.
const strangersAtOnce = 32

// admit counts the request. What the table of rates calls tokens, which it
// counts by the minute, are requests here, and streams are those of strangers
// that are under way.
func (req *request) admit(class rate) *fault.Fault {
	whose, rates := auth.Network(req.r), limit.Rates{TokensPerMinute: req.console.perMinute(class), Streams: strangersAtOnce}
	stranger := req.account == nil
	if !stranger && class != logins {
		whose = req.owner()
	}
	grant, refused := req.runtime.Rates.Admit(req.runtime.Store.Now(), limit.Call{
		User:   limit.Subject{ID: "console/" + string(class) + "/" + whose, Rates: rates},
		Tokens: 1,
		Stream: stranger,
	})
	switch {
	case refused == nil:
	case refused.What == limit.Streams:
		return fault.New(fault.RateLimited, "%d %s of one address are read at once", strangersAtOnce, class).After(refused.RetryAfter)
	default:
		return fault.New(fault.RateLimited, "%d %s a minute are answered", rates.TokensPerMinute, class).After(refused.RetryAfter)
	}
	req.grant = grant
	if !stranger {
		req.proved()
	}
	return nil
}

// proved makes room for another stranger: it is known that this one may be here,
// or the request has ended.
func (req *request) proved() { req.grant.End(req.runtime.Store.Now(), 1) }

// owner returns the id for which the requests and bodies of an authenticated caller are
// counted. A caller that has proved only the password is not counted for the user.
func (req *request) owner() string {
	if req.account.HalfOpen {
		return req.account.Credential
	}
	return req.account.UserID
}
