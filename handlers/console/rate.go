package console

import (
	"net/netip"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// rate is a class of requests that are counted together: by user where there is
// one, else by address.
type rate string

const (
	reads   rate = "reads"
	writes  rate = "writes"
	pages   rate = "pages"
	notices rate = "webhooks"
)

// perMinute is how many requests of a class are answered in a minute.
func (c *Console) perMinute(class rate) int64 {
	switch class {
	case reads:
		return c.Reads
	case writes:
		return c.Writes
	case pages:
		return c.Pages
	}
	return c.Webhooks
}

// admit counts the request. What the table of rates calls tokens, which it
// counts by the minute, are requests here.
func (v *visit) admit(class rate) *fault.Fault {
	whose := v.address()
	if v.account != nil {
		whose = v.account.UserID
	}
	most := v.console.perMinute(class)
	now := v.node.Store.Now()
	grant, refused := v.node.Rates.Admit(now, limit.Call{
		User:   limit.Subject{ID: "console/" + string(class) + "/" + whose, Rates: limit.Rates{TokensPerMinute: most}},
		Tokens: 1,
	})
	if refused != nil {
		return fault.New(fault.RateLimited, "%d %s a minute are answered", most, class).After(refused.RetryAfter)
	}
	grant.End(now, 1)
	return nil
}

// address is the caller's as Caddy has determined it, with the operator's
// trusted proxies. An IPv6 address is cut to its network: whoever has one
// address there has all of them.
func (v *visit) address() string {
	word, _ := caddyhttp.GetVar(v.r.Context(), caddyhttp.ClientIPVarKey).(string)
	addr, err := netip.ParseAddr(word)
	if err != nil {
		return word
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.String()
	}
	return addr.String()
}
