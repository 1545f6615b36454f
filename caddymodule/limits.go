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

	// How many bytes of request bodies may be in memory at once, over all
	// calls; a call above it is answered 503. Default: 512 MiB.
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

	// How many calls may begin in a second by a key that has no such limit of
	// its own. Default: as many as come.
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`

	// How many streaming calls may be open at once by a key that has no such
	// limit of its own. Default: as many as come.
	Streams int64 `json:"streams,omitempty"`

	// How many tokens of every kind, in and out, may be used in a minute by a
	// key that has no such limit of its own. Default: as many as come.
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty"`

	// How many tasks of one API key may be unfinished at once. Default: 100.
	UnfinishedTasks int64 `json:"unfinished_tasks,omitempty"`

	// How many log-ins by password one user name may be tried with in 15
	// minutes. They are counted in the store, whether the name is known or not,
	// and end nobody's session or passkey. At most 1000. Default: 10.
	LoginPerUser int64 `json:"login_per_user,omitempty"`

	// How many log-ins and registrations may come from one address in an hour; an
	// IPv6 address counts by its first 64 bits. At most 1000. Default: 100.
	LoginPerAddress int64 `json:"login_per_address,omitempty"`
}

// maxLogins bounds the limits of log-ins. More is refused here, rather than cut
// where they are counted.
const maxLogins = identity.MaxPace

// maxUnfinished bounds the limit of unfinished tasks.
const maxUnfinished = 1_000_000

func (l *Limits) setDefaults() {
	setDefault(&l.BodyRead, 2*time.Minute)
	setDefault(&l.FirstByte, 10*time.Minute)
	setDefault(&l.Idle, 5*time.Minute)
	setDefault(&l.Ping, 15*time.Second)
	if l.BodyMemory == 0 {
		l.BodyMemory = 512 << 20
	}
	l.UnfinishedTasks = cmp.Or(l.UnfinishedTasks, task.DefaultUnfinished)
	l.LoginPerUser = cmp.Or(l.LoginPerUser, 10)
	l.LoginPerAddress = cmp.Or(l.LoginPerAddress, 100)
}

func setDefault(d *caddy.Duration, value time.Duration) {
	if *d == 0 {
		*d = caddy.Duration(value)
	}
}

// minBodyMemory is the largest single body; a smaller budget would refuse it
// for ever.
const minBodyMemory = 32 << 20

func (l *Limits) validate() error {
	var errs []error
	for name, d := range map[string]caddy.Duration{"body_read": l.BodyRead, "first_byte": l.FirstByte, "idle": l.Idle} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("limits: %s must be positive", name))
		}
	}
	for _, limit := range []struct {
		name        string
		given, most int64
	}{
		{"requests_per_second", l.RequestsPerSecond, identity.MaxCalls},
		{"streams", l.Streams, identity.MaxCalls},
		{"tokens_per_minute", l.TokensPerMinute, identity.MaxTokens},
		{"unfinished_tasks", l.UnfinishedTasks, maxUnfinished},
		{"login_per_user", l.LoginPerUser, maxLogins},
		{"login_per_address", l.LoginPerAddress, maxLogins},
	} {
		if limit.given < 0 || limit.given > limit.most {
			errs = append(errs, fmt.Errorf("limits: %s is from 1 to %d, or left out", limit.name, limit.most))
		}
	}
	return errors.Join(append(errs, validateBodyMemory(l.BodyMemory))...)
}

// OfKey returns the rates that hold for a key with these limits of its own.
func (l *Limits) OfKey(own identity.Limits) limit.Rates {
	return limit.Rates{
		RequestsPerSecond: cmp.Or(own.RequestsPerSecond, l.RequestsPerSecond),
		TokensPerMinute:   cmp.Or(own.TokensPerMinute, l.TokensPerMinute),
		Streams:           cmp.Or(own.Streams, l.Streams),
	}
}

func validateBodyMemory(bytes int64) error {
	if bytes < minBodyMemory {
		return fmt.Errorf("limits: body_memory must be at least %d MiB, the size of the largest body", minBodyMemory>>20)
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
