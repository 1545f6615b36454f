package caddymodule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/internal/task"
	"github.com/caddy-modelgate/modelgate/settings"
)

// Retention configures how long records of ended calls and tasks are kept. Transfers and
// the usage of each day are kept for ever. Each value is at most 3653d.
type Retention struct {
	// Of tasks, from their end. At least 3d, as long as their session ids are in
	// use. Default: 90d.
	Tasks caddy.Duration `json:"tasks,omitempty"`

	// Of the records of calls, from when each was settled last. A change begins
	// within a minute and holds for those that are settled from then on; older calls
	// than this are not listed any more, also after it is raised again. At least 3d,
	// so that `verify` has a whole day of calls to hold against its sums. Default:
	// 90d.
	Calls caddy.Duration `json:"calls,omitempty"`

	// Of the events of the audit, and with it of what people see as the activity
	// of their accounts. A change begins within a minute and holds for events from
	// then on. At least 30d, so that who looks once a month sees all of them.
	// Default: 400d.
	Audit caddy.Duration `json:"audit,omitempty"`
}

// day is the unit of retention.
const day = 24 * time.Hour

// Bounds of how long records are kept: ten years, and what the fields of
// [Retention] tell.
const (
	longestRetention = 3653 * day
	leastCallsKept   = 3 * day
	leastAuditKept   = 30 * day
)

// term is how long records of one kind are kept.
type term struct {
	name         string
	kept         *caddy.Duration
	least, usual time.Duration
}

func (r *Retention) terms() []term {
	return []term{
		{"tasks", &r.Tasks, task.SessionWindow, task.DefaultKept},
		{"calls", &r.Calls, leastCallsKept, journal.CallsKept},
		{"audit", &r.Audit, leastAuditKept, audit.DefaultRetention},
	}
}

func (r *Retention) setDefaults() {
	for _, t := range r.terms() {
		setDefault(t.kept, t.usual)
	}
}

func (r *Retention) validate() error {
	terms := r.terms()
	errs := make([]error, len(terms))
	for i, t := range terms {
		errs[i] = t.validate()
	}
	return errors.Join(errs...)
}

func (t term) validate() error {
	if kept := time.Duration(*t.kept); kept < t.least || kept > longestRetention {
		return fmt.Errorf("retention: %s is from %dd to %dd, not %v", t.name, t.least/day, longestRetention/day, kept)
	}
	return nil
}

// keep applies the retention of the live configuration. A configuration that is rolled
// back must not shorten it even briefly: calls that a shorter retention has dropped stay
// dropped.
func (rt *Runtime) keep(ctx context.Context) error {
	a := rt.adopted.Load()
	if a == nil {
		return nil
	}
	return errors.Join(
		rt.Ledger.KeepCalls(ctx, time.Duration(a.Retention.Calls)),
		rt.Directory.Audit.SetRetention(ctx, time.Duration(a.Retention.Audit)),
	)
}

// unmarshalCaddyfile reads
//
//	retention {
//		tasks <duration>
//		calls <duration>
//		audit <duration>
//	}
func (r *Retention) unmarshalCaddyfile(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	words := make(map[string]settings.Reader)
	for _, t := range r.terms() {
		words[t.name] = settings.Then(settings.Duration(t.kept), t.validate)
	}
	return settings.Block(d, words)
}
