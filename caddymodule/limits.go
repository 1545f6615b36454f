package caddymodule

import (
	"cmp"
	"errors"
	"fmt"
	"net/textproto"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// Limits bound what one call may take, so that slow or dead peers on either
// side hold nothing for ever, and what one key may. The former have defaults,
// the latter are not limited unless it is said here or of the key.
type Limits struct {
	// How long a caller may take to send the whole body of a model call.
	// Caddy's own idle limit does not stop a trickle. Default: 2m.
	BodyRead caddy.Duration `json:"body_read,omitempty"`

	// How many bytes the bodies of authenticated callers may take in memory at
	// once, by the capacity of their buffers. If they are all taken, the slowest
	// body that is still arriving is answered 503, or else the new one. A user has at
	// most a quarter, but always room for one body of the largest size; above it
	// 429. At least 64 MiB. Default: 512 MiB.
	BodyMemory int64 `json:"body_memory,omitempty"`

	// How long a backend may take until the first byte of its answer.
	// Default: 10m.
	FirstByte caddy.Duration `json:"first_byte,omitempty"`

	// How long a backend may be silent in the middle of an answer.
	// Default: 5m.
	Idle caddy.Duration `json:"idle,omitempty"`

	// After how much silence a stream's caller gets a sign of life: a ping
	// event on messages, a comment line on completions. Negative: never.
	// Default: 15s.
	Ping caddy.Duration `json:"ping,omitempty"`

	// How many calls may begin in a second by a key for which the operator has set no
	// such limit. Default: as many as come.
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`

	// How many streaming calls may be open at once by a key for which the operator has
	// set no such limit. Default: as many as come.
	Streams int64 `json:"streams,omitempty"`

	// How many tokens of every kind, in and out, may be used in a minute by a key for
	// which the operator has set no such limit. Default: as many as come.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty"`

	// How many calls may run on at once after their callers have disconnected, see
	// on_disconnect; one more is cancelled. Default: 4096.
	Detached int64 `json:"detached,omitempty"`

	// How many of these may be of one user. Default: 64.
	DetachedPerUser int64 `json:"detached_per_user,omitempty"`

	// How many times a user may have tokens counted in a minute, over all keys:
	// POST /v1/messages/count_tokens costs no money. Default: 600.
	CountTokensPerMinute int64 `json:"count_tokens_per_minute,omitempty"`

	// How many tasks of one API key may be unfinished at once. Default: 100.
	UnfinishedTasks int64 `json:"unfinished_tasks,omitempty"`

	// How many log-ins by password one user name may be tried with in 15
	// minutes. They are counted in the store, whether the name is known or not,
	// and end no session or passkey. At most 1000. Default: 10.
	LoginPerUser int64 `json:"login_per_user,omitempty"`

	// How many log-ins and registrations may come from one address in an hour; an
	// IPv6 address counts by its first 64 bits. At most 1000. Default: 100.
	LoginPerAddress int64 `json:"login_per_address,omitempty"`
}

// maxDetached bounds the limits of calls without their callers.
const maxDetached = 1_000_000

// maxUnfinished bounds the limit of unfinished tasks.
const maxUnfinished = 1_000_000

// countLimit is a limit that is a number from 1 to most. Zero, also as the default: there is none.
type countLimit struct {
	name        string
	value       *int64
	most, usual int64
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
	if l.BodyMemory == 0 {
		l.BodyMemory = 512 << 20
	}
	for _, limit := range l.counts() {
		*limit.value = cmp.Or(*limit.value, limit.usual)
	}
}

func setDefault(d *caddy.Duration, value time.Duration) {
	if *d == 0 {
		*d = caddy.Duration(value)
	}
}

func (l *Limits) validate() error {
	var errs []error
	for name, d := range map[string]caddy.Duration{"body_read": l.BodyRead, "first_byte": l.FirstByte, "idle": l.Idle} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("limits: %s must be positive", name))
		}
	}
	for _, limit := range l.counts() {
		if *limit.value < 0 || *limit.value > limit.most {
			errs = append(errs, fmt.Errorf("limits: %s is from 1 to %d, or left out", limit.name, limit.most))
		}
	}
	return errors.Join(append(errs, validateBodyMemory(l.BodyMemory))...)
}

// OfKey returns the rates that hold for the key of a principal; their units are tokens. Its operator's limits
// replace those of the configuration, and its owner's count where they are lower.
func (l *Limits) OfKey(p *identity.Principal) limit.Rates {
	operator, owner := &p.OperatorLimits, &p.OwnerLimits
	return limit.Rates{
		Requests:   limit.PerSecond(lower(cmp.Or(operator.RequestsPerSecond, l.RequestsPerSecond), owner.RequestsPerSecond)),
		Units:      limit.PerMinute(lower(cmp.Or(operator.TokensPerMinute, l.TokensPerMinute), owner.TokensPerMinute)),
		Concurrent: lower(cmp.Or(operator.Streams, l.Streams), owner.Streams),
	}
}

// lower returns the lower of two limits, of which zero is none.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func validateBodyMemory(bytes int64) error {
	if bytes < minBodyMemory {
		return fmt.Errorf("limits: body_memory must be at least %d MiB, twice the size of the largest body", minBodyMemory>>20)
	}
	return nil
}

func validateHeaderName(name string) error {
	for _, c := range name {
		if c != '-' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return fmt.Errorf("version_header %q: a header's name has letters, digits and \"-\"", name)
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
