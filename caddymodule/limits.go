package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/bodymem"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// Limits are the bounds of calls, so that slow or dead peers on either side do not
// keep resources, and of keys. The bounds of calls have defaults. Keys have no limits
// unless the configuration or the key sets them.
type Limits struct {
	// How long a caller may take to send the whole body of a model call.
	// Caddy's own idle limit does not end a slow but steady body. Default: 2m.
	BodyRead caddy.Duration `json:"body_read,omitempty"`

	// The memory in bytes for the bodies of authenticated callers at once, by the
	// capacity of their buffers. If it is used up, the slowest body that is still
	// arriving gets 503, or else the new one. A user has at most a quarter, but always
	// enough for one body of the largest size; above it 429. At least 64 MiB. Default:
	// 512 MiB.
	BodyMemory int64 `json:"body_memory,omitempty"`

	// How long a backend may take until the first byte of its answer.
	// Default: 10m.
	FirstByte caddy.Duration `json:"first_byte,omitempty"`

	// How long a backend may be silent in the middle of an answer.
	// Default: 5m.
	Idle caddy.Duration `json:"idle,omitempty"`

	// After how much silence the caller of a stream gets a keep-alive: a ping event
	// on messages, a comment line on completions. Negative: never. Default: 15s.
	Ping caddy.Duration `json:"ping,omitempty"`

	// The maximum number of calls that a key may begin in a second, if the operator has
	// set no such limit for the key. Default: no limit.
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`

	// The maximum number of streaming calls that a key may have open at once, if the
	// operator has set no such limit for the key. Default: no limit.
	Streams int64 `json:"streams,omitempty"`

	// The maximum number of tokens of every kind, input and output, that a key may use in
	// a minute, if the operator has set no such limit for the key. Default: no limit.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty"`

	// The maximum number of calls that continue at once after their callers have
	// disconnected, see on_disconnect. One more is cancelled. Default: 4096.
	Detached int64 `json:"detached,omitempty"`

	// The maximum number of these for one user. Default: 64.
	DetachedPerUser int64 `json:"detached_per_user,omitempty"`

	// The maximum number of POST /v1/messages/count_tokens of a user in a minute, over
	// all keys. They cost no money. Default: 600.
	CountTokensPerMinute int64 `json:"count_tokens_per_minute,omitempty"`

	// The maximum number of unfinished tasks of one API key. Default: 100.
	UnfinishedTasks int64 `json:"unfinished_tasks,omitempty"`

	// The maximum number of attempts to log in by password for one user name in 15
	// minutes. The store counts them for known and unknown names; sessions and passkeys
	// still work. At most 1000. Default: 10.
	LoginPerUser int64 `json:"login_per_user,omitempty"`

	// The maximum number of log-ins and registrations from one address in an hour. An
	// IPv6 address counts by its first 64 bits. At most 1000. Default: 100.
	LoginPerAddress int64 `json:"login_per_address,omitempty"`
}

// maxDetached bounds the limits of detached calls.
const maxDetached = 1_000_000

// maxUnfinished bounds the limit of unfinished tasks.
const maxUnfinished = 1_000_000

// countLimit is a limit from 1 to max. A value or a default of zero means no limit.
type countLimit struct {
	name              string
	value             *int64
	max, defaultValue int64
}

func (l *Limits) counts() []countLimit {
	return []countLimit{
		{"requests_per_second", &l.RequestsPerSecond, identity.MaxCalls, 0},
		{"streams", &l.Streams, identity.MaxCalls, 0},
		{"tokens_per_minute", &l.TokensPerMinute, identity.MaxTokens, 0},
		{"detached", &l.Detached, maxDetached, 4096},
		{"detached_per_user", &l.DetachedPerUser, maxDetached, 64},
		{"count_tokens_per_minute", &l.CountTokensPerMinute, identity.MaxCalls, 600},
		{"unfinished_tasks", &l.UnfinishedTasks, maxUnfinished, task.DefaultUnfinished},
		{"login_per_user", &l.LoginPerUser, identity.MaxLoginLimit, 10},
		{"login_per_address", &l.LoginPerAddress, identity.MaxLoginLimit, 100},
	}
}

func (l *Limits) setDefaults() {
	setDefault(&l.BodyRead, 2*time.Minute)
	setDefault(&l.FirstByte, 10*time.Minute)
	setDefault(&l.Idle, 5*time.Minute)
	setDefault(&l.Ping, 15*time.Second)
	l.BodyMemory = cmp.Or(l.BodyMemory, 512<<20)
	for _, limit := range l.counts() {
		*limit.value = cmp.Or(*limit.value, limit.defaultValue)
	}
}

func setDefault(d *caddy.Duration, value time.Duration) {
	*d = cmp.Or(*d, caddy.Duration(value))
}

func (l *Limits) validate() error {
	var errs []error
	for name, d := range map[string]caddy.Duration{"body_read": l.BodyRead, "first_byte": l.FirstByte, "idle": l.Idle} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("limits: %s must be positive", name))
		}
	}
	for _, limit := range l.counts() {
		if *limit.value < 0 || *limit.value > limit.max {
			errs = append(errs, fmt.Errorf("limits: %s is %d; allowed: 1 to %d", limit.name, *limit.value, limit.max))
		}
	}
	return errors.Join(append(errs, validateBodyMemory(l.BodyMemory))...)
}

// OfKey returns the rates for the key of a principal; their units are tokens. The limits
// of the operator replace those of the configuration. The limits of the owner apply if
// they are lower.
func (l *Limits) OfKey(p *identity.Principal) limit.Rates {
	operator, owner := &p.OperatorLimits, &p.OwnerLimits
	return limit.Rates{
		Requests:   limit.PerSecond(lower(cmp.Or(operator.RequestsPerSecond, l.RequestsPerSecond), owner.RequestsPerSecond)),
		Units:      limit.PerMinute(lower(cmp.Or(operator.TokensPerMinute, l.TokensPerMinute), owner.TokensPerMinute)),
		Concurrent: lower(cmp.Or(operator.Streams, l.Streams), owner.Streams),
	}
}

// lower returns the lower of two limits; zero means no limit.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func validateBodyMemory(bytes int64) error {
	if bytes < minBodyMemory {
		return fmt.Errorf("limits: body_memory is too small; allowed: at least %d MiB, twice the size of the largest body", minBodyMemory>>20)
	}
	return nil
}

func validateHeaderName(name string) error {
	for _, c := range name {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("version_header %q: it is not the name of a header; allowed: letters, digits and \"-\"", name)
		}
	}
	switch textproto.CanonicalMIMEHeaderKey(name) {
	case "Authorization", "X-Api-Key", "Cookie", "Host", "Content-Length", "Connection":
		return fmt.Errorf("version_header %q: this header has another meaning", name)
	}
	if !strings.HasSuffix(strings.ToLower(name), "-version") {
		return fmt.Errorf("version_header %q: the name must end in -version", name)
	}
	return nil
}

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
