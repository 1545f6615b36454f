package tasks

import (
	"net/url"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/limit"
)

// noticeLimit is that of the body of a notice, in bytes.
const noticeLimit = 1 << 20

// How many notices one address may send in a minute, and how many it may have
// under way: who sends a body slowly takes a place until it is read.
const (
	noticesPerMinute = 6000
	noticesAtOnce    = 32
)

// takeNotice serves POST /v1/notices/{backend}: the service of a backend tells
// that a job has changed. The adapter knows whether it is the service. All that
// comes of it is that the job is asked for soon.
func takeNotice(v *visit) error {
	name := v.segments[0]
	adapter, ok := v.tasks.app.Notified(name)
	if !ok {
		return fault.New(fault.NotFound, "no backend of this name takes notices")
	}
	grant, refused := v.admitStranger()
	if refused != nil {
		return refused
	}
	defer func() { grant.End(time.Now(), 1) }()
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		return fault.New(fault.InvalidParameter, "the query cannot be read")
	}
	body, refused := v.readBody(noticeLimit)
	if refused != nil {
		return refused
	}
	ref, err := adapter.Notice(backends.Notification{
		Method: v.r.Method, Header: v.r.Header, Query: query, Body: body, Now: v.node.Store.Now(),
	})
	if err != nil {
		v.tasks.logger.Warn("a notice is refused", zap.String("request_id", v.id), zap.String("backend", name), zap.Error(err))
		return fault.New(fault.Forbidden, "this is no notice of the service of this backend")
	}
	if err := v.node.Tasks.Wake(v.r.Context(), name, ref); err != nil {
		return err
	}
	return v.answer(struct{}{})
}

// admitStranger counts a request of somebody without an account, by the address.
// What the table of rates counts by the minute as tokens are requests here.
func (v *visit) admitStranger() (limit.Grant, *fault.Fault) {
	grant, refused := v.node.Rates.Admit(time.Now(), limit.Call{
		User:   limit.Subject{ID: "notice/" + v.network(), Rates: limit.Rates{TokensPerMinute: noticesPerMinute, Streams: noticesAtOnce}},
		Tokens: 1,
		Stream: true,
	})
	if refused != nil {
		return limit.Grant{}, fault.New(fault.RateLimited, "too many notices come from this address").After(refused.RetryAfter)
	}
	return grant, nil
}

// network is where the request comes from, as Caddy has determined it. Whoever
// has one IPv6 address has all of its network.
func (v *visit) network() string {
	addr := auth.Address(v.r).Unmap().WithZone("")
	if addr.Is6() {
		network, _ := addr.Prefix(64)
		return network.String()
	}
	return addr.String()
}
