package tasks

import (
	"errors"
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

// noNotices is the answer where no notice is awaited.
var noNotices = fault.New(fault.NotFound, "no backend of this name takes notices")

// takeNotice serves POST /v1/notices/{backend}: the service of a backend tells
// that a job has changed. The adapter knows whether it is the service, and refuses
// most others by the head, before anything of the body is read. All that comes of a
// notice is that the job is asked for soon.
func takeNotice(v *visit) error {
	name := v.segments[0]
	adapter, ok := v.tasks.app.Notified(name)
	if !ok {
		return noNotices
	}
	grant, refused := v.admitNotice()
	if refused != nil {
		return refused
	}
	defer func() { grant.End(time.Now(), 0) }()
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		return fault.New(fault.InvalidParameter, "the query cannot be read")
	}
	notice := backends.Notification{Method: v.r.Method, Header: v.r.Header, Query: query, Now: v.runtime.Store.Now()}
	if err := adapter.CheckHead(notice); err != nil {
		return v.unproved(name, err)
	}
	if notice.Body, refused = v.readBody(noticeLimit); refused != nil {
		return refused
	}
	ref, err := adapter.Notice(notice)
	if err != nil {
		return v.unproved(name, err)
	}
	if err := v.runtime.Tasks.Wake(v.r.Context(), name, ref); err != nil {
		return err
	}
	return v.answer(struct{}{})
}

// unproved refuses a notice that is not proved to be from the service.
func (v *visit) unproved(backend string, why error) *fault.Fault {
	if errors.Is(why, backends.ErrNoNotices) {
		return noNotices
	}
	v.tasks.logger.Warn("a notice is refused", zap.String("request_id", v.id), zap.String("backend", backend), zap.Error(why))
	return fault.New(fault.Forbidden, "this is no notice of the service of this backend")
}

// admitNotice counts a notice by the address that sends it.
func (v *visit) admitNotice() (limit.Grant, *fault.Fault) {
	grant, refused := v.runtime.Rates.Admit(time.Now(), limit.Request{
		User:       limit.Subject{ID: "notice/" + auth.Network(v.r), Rates: limit.Rates{Requests: limit.PerMinute(noticesPerMinute), Concurrent: noticesAtOnce}},
		Concurrent: true,
	})
	if refused != nil {
		return limit.Grant{}, fault.New(fault.RateLimited, "too many notices come from this address").After(refused.RetryAfter)
	}
	return grant, nil
}
