package caddymodule

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/bodymem"
)

// maxBody is the memory of the largest body in bytes: 32 MiB and the overhead of its
// buffer.
const maxBody = 32<<20 + 4<<10

// minBodyMemory is the minimum budget of authenticated callers in bytes: one body of the
// largest size must leave space for those of others.
const minBodyMemory = 64 << 20

// Bodies returns the limits for the bodies of authenticated callers. A user has a quarter
// of the budget, but always enough for one body of the largest size.
func (l *Limits) Bodies() bodymem.Limits {
	return bodymem.Limits{Total: l.BodyMemory, Share: max(l.BodyMemory/4, maxBody)}
}

// The limits for the bodies of unauthenticated callers, by address. Each class has its
// own budget, so that none can block another.
var (
	NoticeBodies  = bodymem.Limits{Total: 8 << 20, Share: 2 << 20} // of generation services
	WebhookBodies = bodymem.Limits{Total: 8 << 20, Share: 1 << 20} // of payment services
	LogInBodies   = bodymem.Limits{Total: 8 << 20, Share: 1 << 20} // of log-ins and payment pages
)

// BodyBudgets are the budgets of request bodies of a runtime, by class of caller.
type BodyBudgets struct {
	Users    bodymem.Budget // by user
	Notices  bodymem.Budget // this and the following: by address
	Webhooks bodymem.Budget
	LogIns   bodymem.Budget
}

// clock sets the clock of all budgets.
func (b *BodyBudgets) clock(now func() time.Time) {
	for _, budget := range []*bodymem.Budget{&b.Users, &b.Notices, &b.Webhooks, &b.LogIns} {
		budget.Now = now
	}
}
