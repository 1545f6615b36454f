package identity

import (
	"encoding/json"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/money"
)

// limitsOf returns the limits of calls with a key, now and after a
// restart.
func (f fixture) limitsOf(t *testing.T, secret string) (key, user Limits) {
	t.Helper()
	now, ok := f.Authenticate(secret)
	later, still := f.reopened(t).Authenticate(secret)
	if !ok || !still {
		t.Fatal("the key is refused")
	}
	if now.OperatorLimits != later.OperatorLimits || now.UserLimits != later.UserLimits {
		t.Errorf("memory holds %v and %v, the store has %v and %v", now.OperatorLimits, now.UserLimits, later.OperatorLimits, later.UserLimits)
	}
	return now.OperatorLimits, now.UserLimits
}

func TestLimitsApplyToTheNextRequest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := t.Context()
	f.user(t, "ann")
	initial := Limits{Streams: 2}
	first, secret := f.key(t, "ann", KeySpec{Limits: initial})
	_, other := f.key(t, "ann", KeySpec{})
	if key, user := f.limitsOf(t, secret); key != initial || user != (Limits{}) {
		t.Errorf("a fresh key has %v, its user %v", key, user)
	}

	ofKey := Limits{Budget: 10 * money.Unit, Reset: calendar.Month, TokensPerMinute: 100_000}
	if key, err := f.ChangeKeyLimits(ctx, "operator", first.ID, ofKey.Change()); err != nil || key.Operator.Limits != ofKey {
		t.Fatalf("%+v, %v", key, err)
	}
	ofUser := Limits{RequestsPerSecond: 5}
	if user, err := f.ChangeUserLimits(ctx, "operator", "ANN", ofUser.Change()); err != nil || user.Limits != ofUser {
		t.Fatalf("%+v, %v", user, err)
	}
	if key, user := f.limitsOf(t, secret); key != ofKey || user != ofUser {
		t.Errorf("the limited key has %v, its user %v", key, user)
	}
	if key, user := f.limitsOf(t, other); key != (Limits{}) || user != ofUser {
		t.Errorf("the other key has %v, its user %v", key, user)
	}
	_, rotated, err := f.RotateKey(ctx, "operator", first.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if key, _ := f.limitsOf(t, rotated.Reveal()); key != ofKey {
		t.Errorf("the rotated key has %v", key)
	}
	if _, err := f.ChangeUserLimits(ctx, "operator", "ann", Limits{}.Change()); err != nil {
		t.Fatal(err)
	}
	if _, user := f.limitsOf(t, other); user != (Limits{}) {
		t.Errorf("a user without limits has %v", user)
	}
}

func TestChangingALimitKeepsTheOthers(t *testing.T) {
	t.Parallel()
	full := Limits{Budget: 10 * money.Unit, Reset: calendar.Month, RequestsPerSecond: 5, Streams: 4, TokensPerMinute: 100}
	for name, c := range map[string]struct {
		from   Limits
		change LimitsChange
		want   Limits
	}{
		"nothing":                  {full, LimitsChange{}, full},
		"a budget keeps its reset": {full, LimitsChange{Budget: new(money.Unit)}, Limits{money.Unit, calendar.Month, 5, 4, 100}},
		"a reset keeps its budget": {full, LimitsChange{Reset: new(calendar.Day)}, Limits{10 * money.Unit, calendar.Day, 5, 4, 100}},
		"no budget and no reset":   {full, LimitsChange{Budget: new(money.Amount(0))}, Limits{0, "", 5, 4, 100}},
		"a budget without a reset": {Limits{}, LimitsChange{Budget: new(money.Unit)}, Limits{Budget: money.Unit, Reset: calendar.Never}},
		"a budget and a reset":     {Limits{}, LimitsChange{Budget: new(money.Unit), Reset: new(calendar.Week)}, Limits{Budget: money.Unit, Reset: calendar.Week}},
		"the rates":                {full, LimitsChange{RequestsPerSecond: new(int64(0)), Streams: new(int64(MaxCalls)), TokensPerMinute: new(int64(MaxTokens))}, Limits{10 * money.Unit, calendar.Month, 0, MaxCalls, MaxTokens}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.user(t, "ann")
			key, secret := f.key(t, "ann", KeySpec{Limits: c.from})
			if _, err := f.ChangeUserLimits(t.Context(), "operator", "ann", c.from.Change()); err != nil {
				t.Fatal(err)
			}
			changed, err := f.ChangeKeyLimits(t.Context(), "operator", key.ID, c.change)
			if err != nil || changed.Operator.Limits != c.want {
				t.Errorf("the key has %+v (%v), want %+v", changed.Operator.Limits, err, c.want)
			}
			user, err := f.ChangeUserLimits(t.Context(), "operator", "ann", c.change)
			if err != nil || user.Limits != c.want {
				t.Errorf("the user has %+v (%v), want %+v", user.Limits, err, c.want)
			}
			if ofKey, ofUser := f.limitsOf(t, secret); ofKey != c.want || ofUser != c.want {
				t.Errorf("the principal has %+v and %+v", ofKey, ofUser)
			}
		})
	}
}

func TestInvalidLimitsAreRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := Limits{Budget: money.Unit, Reset: calendar.Day, Streams: 1}
	f.user(t, "ann")
	key, secret := f.key(t, "ann", KeySpec{Limits: before})
	if _, err := f.ChangeUserLimits(t.Context(), "operator", "ann", before.Change()); err != nil {
		t.Fatal(err)
	}
	for param, cases := range map[string][]Limits{
		"budget":              {{Budget: -1}},
		"reset":               {{Reset: calendar.Month}, {Budget: 1, Reset: "year"}, {Reset: "Month"}},
		"requests_per_second": {{RequestsPerSecond: -1}, {RequestsPerSecond: MaxCalls + 1}},
		"streams":             {{Streams: -1}, {Streams: MaxCalls + 1}},
		"tokens_per_minute":   {{TokensPerMinute: -1}, {TokensPerMinute: MaxTokens + 1}},
	} {
		for _, limits := range cases {
			_, ofKey := f.ChangeKeyLimits(t.Context(), "operator", key.ID, limits.Change())
			_, ofUser := f.ChangeUserLimits(t.Context(), "operator", "ann", limits.Change())
			_, _, ofSpec := f.CreateKey(t.Context(), "operator", "ann", KeySpec{Limits: limits})
			for err, want := range map[error]string{ofKey: param, ofUser: param, ofSpec: "limits." + param} {
				if codeOf(err) != fault.InvalidParameter || paramOf(err) != want {
					t.Errorf("%+v: %v, want a refusal at %s", limits, err, want)
				}
			}
		}
	}
	if _, err := f.ChangeKeyLimits(t.Context(), "operator", key.ID, LimitsChange{Budget: new(money.Amount(0)), Reset: new(calendar.Day)}); paramOf(err) != "reset" {
		t.Errorf("a reset without a budget: %v", err)
	}
	if ofKey, ofUser := f.limitsOf(t, secret); ofKey != before || ofUser != before {
		t.Errorf("refused limits changed %+v to %+v and %+v", before, ofKey, ofUser)
	}
}

func TestLimitsOfAnEndedKeyCannotBeChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.user(t, "ann")
	revoked, _ := f.key(t, "ann", KeySpec{})
	if _, err := f.RevokeKey(t.Context(), "operator", revoked.ID); err != nil {
		t.Fatal(err)
	}
	expired, _ := f.key(t, "ann", KeySpec{Expires: f.clock.Now().Unix() + 1})
	f.clock.Advance(1e9)
	for what, id := range map[string]string{"revoked": revoked.ID, "expired": expired.ID} {
		if _, err := f.ChangeKeyLimits(t.Context(), "operator", id, Limits{Streams: 1}.Change()); codeOf(err) != fault.Conflict {
			t.Errorf("limits of a key that is %s: %v", what, err)
		}
	}
}

func TestLimitsAsJSONAndText(t *testing.T) {
	t.Parallel()
	full := Limits{Budget: 10 * money.Unit, Reset: calendar.Month, RequestsPerSecond: 5, Streams: 4, TokensPerMinute: 100_000}
	for _, c := range []struct {
		limits     Limits
		json, text string
	}{
		{Limits{}, `{"id":"","name":"","created":0}`, "none"},
		{full, `{"id":"","name":"","created":0,"limits":{"budget":"10.00","reset":"month","requests_per_second":5,"streams":4,"tokens_per_minute":100000}}`, "budget 10.00 a month, requests/s 5, streams 4, tokens/min 100000"},
		{Limits{Budget: 1, Reset: calendar.Never}, `{"id":"","name":"","created":0,"limits":{"budget":"0.000000001","reset":"never"}}`, "budget 0.000000001"},
		{Limits{Streams: 1}, `{"id":"","name":"","created":0,"limits":{"streams":1}}`, "streams 1"},
	} {
		shown, err := json.Marshal(User{Limits: c.limits})
		if err != nil || string(shown) != c.json {
			t.Errorf("as JSON %s (%v), want %s", shown, err, c.json)
		}
		if got := c.limits.String(); got != c.text {
			t.Errorf("as text %q, want %q", got, c.text)
		}
	}
}
