package auth

import (
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/limit"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestAPayerHasTheConfiguredBudgets(t *testing.T) {
	t.Parallel()
	type limits = identity.Limits
	key, own, user := ledger.KeyBudget("key_1", money.Unit, calendar.Day), ledger.OwnerBudget("key_1", money.Unit, calendar.Day), ledger.UserBudget(2*money.Unit, calendar.Month)
	ofKey := identity.Limits{Budget: money.Unit, Reset: calendar.Day}
	ofUser := identity.Limits{Budget: 2 * money.Unit, Reset: calendar.Month}
	for name, c := range map[string]struct {
		key, owner, user limits
		want             ledger.Budgets
	}{
		"none":         {limits{Streams: 1}, limits{Streams: 1}, limits{Streams: 1}, ledger.Budgets{}},
		"of the key":   {ofKey, limits{}, limits{}, ledger.Budgets{key}},
		"of its owner": {limits{}, ofKey, limits{}, ledger.Budgets{{}, own}},
		"of the user":  {limits{}, limits{}, ofUser, ledger.Budgets{{}, {}, user}},
		"of all":       {ofKey, ofKey, ofUser, ledger.Budgets{key, own, user}},
	} {
		got := Payer(&identity.Principal{UserID: "usr_1", KeyID: "key_1", OperatorLimits: c.key, OwnerLimits: c.owner, UserLimits: c.user})
		if want := (ledger.Payer{User: "usr_1", Budgets: c.want}); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func TestDefaultRatesOfKeysAndRatesOfUsers(t *testing.T) {
	t.Parallel()
	limits := &caddymodule.Limits{RequestsPerSecond: 3, Streams: 4, TokensPerMinute: 5}
	p := &identity.Principal{UserID: "usr_1", KeyID: "key_1", OperatorLimits: identity.Limits{Streams: 1}, UserLimits: identity.Limits{RequestsPerSecond: 7, TokensPerMinute: 8}}
	key, user := Subjects(p, limits)
	if want := (limit.Subject{ID: "key_1", Rates: limit.Rates{Requests: limit.PerSecond(3), Concurrent: 1, Units: limit.PerMinute(5)}, OfAllNodes: true}); key != want {
		t.Errorf("the key is %+v, want %+v", key, want)
	}
	if want := (limit.Subject{ID: "usr_1", Rates: limit.Rates{Requests: limit.PerSecond(7), Units: limit.PerMinute(8)}, OfAllNodes: true}); user != want {
		t.Errorf("the user is %+v, want %+v", user, want)
	}
}

func TestARateLimitedAnswerNamesTheLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refusal limit.Refusal
		want    string
	}{
		{limit.Refusal{What: limit.Requests, Limit: 5}, "the limit of 5 requests per second of your key is reached"},
		{limit.Refusal{What: limit.Units, Limit: 6, OfUser: true}, "the limit of 6 tokens per minute of your account is reached"},
		{limit.Refusal{What: limit.Concurrent, Limit: 7}, "the limit of 7 streams at once of your key is reached"},
		{limit.Refusal{What: limit.Requests, Limit: 1}, "the limit of 1 request per second of your key is reached"},
		{limit.Refusal{What: limit.Units, Limit: 1, OfUser: true}, "the limit of 1 token per minute of your account is reached"},
		{limit.Refusal{What: limit.Concurrent, Limit: 1}, "the limit of 1 stream at once of your key is reached"},
	} {
		c.refusal.RetryAfter = 3 * time.Second
		got := RateLimited(&c.refusal)
		if got.Code != fault.RateLimited || got.Message != c.want || got.RetryAfter != 3*time.Second || got.Status() != 429 {
			t.Errorf("%+v is %+v", c.refusal, got)
		}
	}
}
