package tasks

import (
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// readBody reads the whole body, at most limit bytes. It is refused unread where
// the head tells that it will not do.
func (v *visit) readBody(limit int64) ([]byte, *fault.Fault) {
	if coding := reply.Encoding(v.r.Header); coding != "" {
		return nil, fault.New(fault.UnsupportedMediaType, "Content-Encoding %.64q: send the body without an encoding", coding)
	}
	patience := reply.StrangerPatience
	if v.principal != nil {
		patience = time.Duration(v.tasks.app.Limits.BodyRead)
	}
	body, refused := reply.ReadBody(v.w, v.r, limit, patience, v.reserve)
	v.read = refused == nil
	return body, refused
}

// reserve takes bytes of the node's memory for bodies, if it has them, or gives
// them back with a negative n.
func (v *visit) reserve(n int64) (taken bool) {
	if v.principal == nil {
		taken = v.node.ReserveStranger(n)
	} else {
		taken = v.node.ReserveBody(n, v.tasks.app.Limits.BodyMemory)
	}
	if taken {
		v.taken += n
	}
	return taken
}
