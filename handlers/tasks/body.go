package tasks

import (
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// readBody reads the whole body, at most limit bytes. It is refused unread where
// the head tells that it will not do.
func (req *request) readBody(limit int64) ([]byte, *fault.Fault) {
	if coding := reply.Encoding(req.r.Header); coding != "" {
		return nil, fault.New(fault.UnsupportedMediaType, "Content-Encoding %.64q: send the body without an encoding", coding)
	}
	patience := reply.UnauthenticatedPatience
	if req.principal != nil {
		patience = time.Duration(req.tasks.app.Limits.BodyRead)
	}
	body, refused := reply.ReadBody(req.w, req.r, limit, patience, req.claim())
	req.read = refused == nil
	return body, refused
}

// claim opens the claim of the body. Notices have a budget of their own.
func (req *request) claim() *bodymem.Claim {
	if req.principal == nil {
		req.runtime.Bodies.Notices.Open(&req.memory, req.w, auth.Network(req.r), caddymodule.NoticeBodies)
	} else {
		req.runtime.Bodies.Users.Open(&req.memory, req.w, req.principal.UserID, req.tasks.app.Limits.Bodies())
	}
	return &req.memory
}
