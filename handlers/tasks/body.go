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
func (v *visit) readBody(limit int64) ([]byte, *fault.Fault) {
	if coding := reply.Encoding(v.r.Header); coding != "" {
		return nil, fault.New(fault.UnsupportedMediaType, "Content-Encoding %.64q: send the body without an encoding", coding)
	}
	patience := reply.UnauthenticatedPatience
	if v.principal != nil {
		patience = time.Duration(v.tasks.app.Limits.BodyRead)
	}
	body, refused := reply.ReadBody(v.w, v.r, limit, patience, v.claim())
	v.read = refused == nil
	return body, refused
}

// claim opens the claim of the body. Notices have a budget of their own.
func (v *visit) claim() *bodymem.Claim {
	if v.principal == nil {
		v.runtime.Bodies.Notices.Open(&v.memory, v.w, auth.Network(v.r), caddymodule.NoticeBodies)
	} else {
		v.runtime.Bodies.Users.Open(&v.memory, v.w, v.principal.UserID, v.tasks.app.Limits.Bodies())
	}
	return &v.memory
}
