package tasks

import (
	"errors"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/backends"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// noNotices is the fault if no backend takes the notice.
var noNotices = fault.New(fault.NotFound, "no backend of this name takes notices")

// notification returns the request as adapters read it.
func (req *request) notification() (backends.Notification, *fault.Fault) {
	q := query.Of(req.r)
	return backends.Notification{Method: req.r.Method, Header: req.r.Header, Query: q.Values, Now: req.runtime.Store.Now()}, q.Fault
}

// checkHead refuses a notice whose head shows that it is not from the service of the backend. It
// does not read the body.
func (req *request) checkHead() *fault.Fault {
	notice, f := req.notification()
	if f != nil {
		return f
	}
	if err := req.adapter.CheckHead(notice); err != nil {
		return req.refuseNotice(err)
	}
	return nil
}

// takeNotice serves POST /v1/notices/{backend}: the service of a backend reports that a job
// has changed. Its only effect is an earlier poll of the job.
func takeNotice(req *request) error {
	notice, f := req.notification()
	if f == nil {
		notice.Body, f = req.readBody()
	}
	if f != nil {
		return f
	}
	ref, err := req.adapter.Notice(notice)
	if err != nil {
		return req.refuseNotice(err)
	}
	if err := req.runtime.Tasks.Wake(req.r.Context(), req.r.PathValue("backend"), ref); err != nil {
		return err
	}
	return req.answer(struct{}{})
}

// refuseNotice refuses a notice that does not authenticate the service.
func (req *request) refuseNotice(why error) *fault.Fault {
	if errors.Is(why, backends.ErrNoNotices) {
		return noNotices
	}
	req.tasks.logger.Warn("a notice is refused", zap.String("request_id", req.id), zap.String("backend", req.r.PathValue("backend")), zap.Error(why))
	return fault.New(fault.Forbidden, "this is not a notice of the service of this backend")
}
