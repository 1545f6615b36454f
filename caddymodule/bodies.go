package caddymodule

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/bodymem"
)

// maxBody is the memory that the largest body takes, in bytes: 32 MiB and what its
// buffer has beside it.
const maxBody = 32<<20 + 4<<10

// minBodyMemory is the least budget of authenticated callers: one body of the largest
// size must leave room for those of others.
const minBodyMemory = 64 << 20

// Bodies are the bounds of the bodies of authenticated callers. A user has a quarter,
// but always room for one body of the largest size.
func (l *Limits) Bodies() bodymem.Limits {
	return bodymem.Limits{Total: l.BodyMemory, Share: max(l.BodyMemory/4, maxBody)}
}

// The bounds of the bodies of unauthenticated callers, whose owners are addresses.
// Each class has a budget of its own, so that none can shut out another.
var (
	NoticeBodies  = bodymem.Limits{Total: 8 << 20, Share: 2 << 20} // of generation services
	WebhookBodies = bodymem.Limits{Total: 8 << 20, Share: 1 << 20} // of payment services
	LogInBodies   = bodymem.Limits{Total: 8 << 20, Share: 1 << 20} // of log-ins and payment pages
)

// BodyBudgets are the budgets of request bodies of a runtime, by class of caller.
type BodyBudgets struct {
	Users    bodymem.Budget // authenticated callers; owners are users
	Notices  bodymem.Budget // owners of these and the following are addresses
	Webhooks bodymem.Budget
	LogIns   bodymem.Budget
}

// clock sets the clock of all budgets.
func (b *BodyBudgets) clock(now func() time.Time) {
	for _, budget := range []*bodymem.Budget{&b.Users, &b.Notices, &b.Webhooks, &b.LogIns} {
		budget.Now = now
	}
}
