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
// the usage of each day are never removed. Each value is at most 3653d.
type Retention struct {
	// How long tasks are kept after their end. At least 3d, because their session ids
	// are in use for so long. Default: 90d.
	Tasks caddy.Duration `json:"tasks,omitempty"`

	// How long the record of a call is kept after its last settlement. A change takes
	// effect within a minute, for calls that are settled from then on. Older calls are no
	// longer listed, also if the value is raised again. At least 3d, so that `verify`
	// can compare a whole day of calls with its sums. Default: 90d.
	Calls caddy.Duration `json:"calls,omitempty"`

	// How long events of the audit log are kept. Users see them as the activity of their
	// accounts. A change takes effect within a minute, for later events. At least 30d, so
	// that a monthly review sees all of them. Default: 400d.
	Audit caddy.Duration `json:"audit,omitempty"`
}

// day is the unit of retention.
const day = 24 * time.Hour

// Bounds of the fields of [Retention]; the maximum is ten years.
const (
	maxRetention   = 3653 * day
	leastCallsKept = 3 * day
	leastAuditKept = 30 * day
)

// retentionField is how long records of one kind are kept.
type retentionField struct {
	name              string
	kept              *caddy.Duration
	min, defaultValue time.Duration
}

func (r *Retention) fields() []retentionField {
	return []retentionField{
		{"tasks", &r.Tasks, task.SessionWindow, task.DefaultKept},
		{"calls", &r.Calls, leastCallsKept, journal.DefaultRetention},
		{"audit", &r.Audit, leastAuditKept, audit.DefaultRetention},
	}
}

func (r *Retention) setDefaults() {
	for _, t := range r.fields() {
		setDefault(t.kept, t.defaultValue)
	}
}

func (r *Retention) validate() error {
	fields := r.fields()
	errs := make([]error, len(fields))
	for i, t := range fields {
		errs[i] = t.validate()
	}
	return errors.Join(errs...)
}

func (t retentionField) validate() error {
	if kept := time.Duration(*t.kept); kept < t.min || kept > maxRetention {
		return fmt.Errorf("retention: %s is %v; allowed: %dd to %dd", t.name, kept, t.min/day, maxRetention/day)
	}
	return nil
}

// keep applies the retention of the live configuration. A configuration that Caddy rolls
// back must not shorten it even briefly: calls that a shorter retention has dropped stay
// dropped.
func (rt *Runtime) keep(ctx context.Context) error {
	a := rt.adopted.Load()
	if a == nil {
		return nil
	}
	return errors.Join(
		rt.Ledger.SetCallRetention(ctx, time.Duration(a.Retention.Calls)),
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
	for _, t := range r.fields() {
		words[t.name] = settings.Then(settings.Duration(t.kept), t.validate)
	}
	return settings.Block(d, words)
}
