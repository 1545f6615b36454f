package identity

import (
	"context"
	"fmt"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Limits bound the use of a key, or of all keys of a user together. Zero means no limit; to stop
// all use, revoke the key or disable the user. A change acts on the next
// request. Budgets are enforced by the ledger, rates by internal/limit.
type Limits struct {
	// Budget is how much may be spent in each period of Reset.
	Budget money.Amount `json:"budget,omitempty"`

	// Reset is the period of the budget. It is set if and only if there is a budget.
	Reset calendar.Reset `json:"reset,omitempty"`

	// RequestsPerSecond is how many calls may begin in a second, at most
	// [MaxCalls].
	RequestsPerSecond int64 `json:"requests_per_second,omitempty"`

	// Streams is how many streaming calls may be open at once, at most
	// [MaxCalls].
	Streams int64 `json:"streams,omitempty"`

	// TokensPerMinute is how many tokens of every kind, in and out, may be used
	// in a minute, at most [MaxTokens].
	TokensPerMinute int64 `json:"tokens_per_minute,omitempty"`
}

// The maximum values of limits.
const (
	MaxCalls  = 1_000_000
	MaxTokens = 1_000_000_000
)

// countLimit is a limit that counts something.
type countLimit struct {
	name, unit string
	most, max  int64
}

func (l Limits) counts() [3]countLimit {
	return [...]countLimit{
		{"requests_per_second", "requests/s", l.RequestsPerSecond, MaxCalls},
		{"streams", "streams", l.Streams, MaxCalls},
		{"tokens_per_minute", "tokens/min", l.TokensPerMinute, MaxTokens},
	}
}

// String returns the limits in words, "none" when there are none.
func (l Limits) String() string {
	var limits []string
	if l.Budget != 0 {
		budget := "budget " + l.Budget.String()
		if l.Reset != calendar.Never {
			budget += " a " + string(l.Reset)
		}
		limits = append(limits, budget)
	}
	for _, limit := range l.counts() {
		if limit.most != 0 {
			limits = append(limits, fmt.Sprintf("%s %d", limit.unit, limit.most))
		}
	}
	if limits == nil {
		return "none"
	}
	return strings.Join(limits, ", ")
}

// checked returns the limits in the form in which they are stored, or a fault whose param is the
// name of the invalid limit.
func (l Limits) checked() (Limits, *fault.Fault) {
	if l.Budget < 0 {
		return l, fault.At(fault.InvalidParameter, "budget", "a budget is not negative; 0 means none")
	}
	reset, err := calendar.ParseReset(string(l.Reset))
	switch {
	case err != nil:
		return l, fault.At(fault.InvalidParameter, "reset", "%v", err)
	case l.Budget != 0:
		l.Reset = reset
	case reset != calendar.Never:
		return l, fault.At(fault.InvalidParameter, "reset", "there is no budget to reset each %s", reset)
	default:
		l.Reset = ""
	}
	for _, limit := range l.counts() {
		if limit.most < 0 || limit.most > limit.max {
			return l, fault.At(fault.InvalidParameter, limit.name, "%s is between 0, which means no limit, and %d", limit.name, limit.max)
		}
	}
	return l, nil
}

// LimitsChange changes some limits. Limits that are nil stay.
type LimitsChange struct {
	Budget            *money.Amount   `json:"budget,omitempty"`
	Reset             *calendar.Reset `json:"reset,omitempty"`
	RequestsPerSecond *int64          `json:"requests_per_second,omitempty"`
	Streams           *int64          `json:"streams,omitempty"`
	TokensPerMinute   *int64          `json:"tokens_per_minute,omitempty"`
}

// applyTo returns the changed limits. Removing a budget also removes its reset.
func (c LimitsChange) applyTo(limits Limits) Limits {
	if c.Budget != nil && *c.Budget == 0 {
		limits.Reset = ""
	}
	replace(&limits.Budget, c.Budget)
	replace(&limits.Reset, c.Reset)
	replace(&limits.RequestsPerSecond, c.RequestsPerSecond)
	replace(&limits.Streams, c.Streams)
	replace(&limits.TokensPerMinute, c.TokensPerMinute)
	return limits
}

func replace[T any](old, by *T) {
	if by != nil {
		*old = *by
	}
}

// Change returns the change that sets all limits to l.
func (l Limits) Change() LimitsChange {
	return LimitsChange{&l.Budget, &l.Reset, &l.RequestsPerSecond, &l.Streams, &l.TokensPerMinute}
}

// ChangeKeyLimits changes some of the operator's limits of a key. The owner's limits stay.
func (d *Directory) ChangeKeyLimits(ctx context.Context, actor, id string, change LimitsChange) (Key, error) {
	return d.changeKey(ctx, id, func(key *keyRecord) (*audit.Event, error) {
		if refusal := key.ended(d.store.Now()); refusal != nil {
			return nil, refusal
		}
		before := key.Operator.Limits.String()
		changed, err := key.Operator.Limits.update(change)
		if err != nil || !changed {
			return nil, err
		}
		return &audit.Event{Actor: actor, Action: "key.limit", User: key.UserID, Key: key.ID, Detail: key.Operator.Limits.String(), Before: before, After: key.Operator.Limits.String()}, nil
	})
}

// ChangeUserLimits changes some limits of a user, which bound all keys of the user together.
func (d *Directory) ChangeUserLimits(ctx context.Context, actor, idOrName string, change LimitsChange) (User, error) {
	return d.changeUser(ctx, idOrName, func(_ storage.Txn, user *userRecord) (*audit.Event, error) {
		before := user.Limits.String()
		changed, err := user.Limits.update(change)
		if err != nil || !changed {
			return nil, err
		}
		return &audit.Event{Actor: actor, Action: "user.limit", User: user.ID, Detail: user.Limits.String(), Before: before, After: user.Limits.String()}, nil
	})
}

// update applies a change, and reports whether it changes anything.
func (l *Limits) update(change LimitsChange) (changed bool, err error) {
	limits, refusal := change.applyTo(*l).checked()
	if refusal != nil {
		return false, refusal
	}
	changed = *l != limits
	*l = limits
	return changed, nil
}
