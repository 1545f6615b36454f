package billing

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/calendar"
	"github.com/caddy-modelgate/modelgate/money"
)

// starter is a plan with every field that has no default.
func starter() Plan {
	return Plan{
		ID: 1, Title: "Starter", Price: 9_900_000_000, Quota: 12 * money.Unit,
		Duration: calendar.Duration{Count: 1, Unit: calendar.Months},
	}
}

func TestAPlanThatCannotBeSoldIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Plan)
		want   string
	}{
		"no id":                {func(p *Plan) { p.ID = 0 }, "plan 0: the id is a number from 1"},
		"a negative id":        {func(p *Plan) { p.ID = -1 }, "the id is a number from 1"},
		"an id beyond JSON":    {func(p *Plan) { p.ID = 1 << 53 }, "to 9007199254740991"},
		"no title":             {func(p *Plan) { p.Title = "" }, "plan 1: the title has 1 to 100 characters, this has 0"},
		"a long title":         {func(p *Plan) { p.Title = strings.Repeat("ü", 101) }, "this has 101"},
		"a title of two lines": {func(p *Plan) { p.Title = "a\nb" }, "without control characters"},
		"a title with spaces":  {func(p *Plan) { p.Title = " a" }, "without spaces around it"},
		"an invalid title":     {func(p *Plan) { p.Title = "\xff" }, "must be UTF-8"},
		"a negative price":     {func(p *Plan) { p.Price = -1 }, "the price is -0.000000001"},
		"no quota":             {func(p *Plan) { p.Quota = 0 }, "the quota is 0.00 and must be more than zero"},
		"a negative quota":     {func(p *Plan) { p.Quota = -1 }, "must be more than zero"},
		"no duration":          {func(p *Plan) { p.Duration = calendar.Duration{} }, "a count of 1 to 1000"},
		"an unknown unit":      {func(p *Plan) { p.Duration.Unit = "moon" }, `unit "moon"`},
		"an unknown reset":     {func(p *Plan) { p.QuotaReset = "hour" }, `quota_reset: reset "hour": it is never, day, week or month`},
		"a negative limit":     {func(p *Plan) { p.PurchaseLimit = -1 }, "purchase_limit is -1"},
	} {
		p := starter()
		c.change(&p)
		if _, err := NewPlans([]Plan{p}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want %q", name, err, c.want)
		}
	}
	if _, err := NewPlans([]Plan{starter(), starter()}); err == nil || !strings.Contains(err.Error(), "plan 1 is given twice") {
		t.Errorf("two plans with one id: %v", err)
	}
}

func TestPlansAreFoundByIDAndSoldInOrder(t *testing.T) {
	t.Parallel()
	first, disabled, free := starter(), starter(), starter()
	first.ID, disabled.ID, free.ID = 7, 2, 1
	disabled.Disabled = true
	free.Price, free.QuotaReset, free.Title = 0, calendar.Week, strings.Repeat("ü", 100)
	rows := []Plan{first, disabled, free}
	plans, err := NewPlans(rows)
	if err != nil {
		t.Fatal(err)
	}
	rows[0].Price = 0 // a later change by the caller has no effect

	first.QuotaReset, disabled.QuotaReset = calendar.Never, calendar.Never
	for _, want := range []Plan{first, disabled, free} {
		if got, ok := plans.Find(want.ID); !ok || got != want {
			t.Errorf("plan %d is %+v, %v, want %+v", want.ID, got, ok, want)
		}
	}
	if got, ok := plans.Find(3); ok {
		t.Errorf("found a plan 3: %+v", got)
	}
	got := plans.OnSale()
	if len(got) != 2 || got[0] != first || got[1] != free {
		t.Errorf("OnSale returned %+v", got)
	}
	got[0].Price = 0
	if again := plans.OnSale(); again[0] != first {
		t.Error("a change of the returned plans has changed the set")
	}
}

func TestPlansRoundTripAsJSON(t *testing.T) {
	t.Parallel()
	const wantJSON = `{"plan_id":1,"title":"Starter","price":"9.90","quota":"12.00","duration":{"count":1,"unit":"month"},"quota_reset":"week","purchase_limit":3}`
	want := starter()
	want.QuotaReset, want.PurchaseLimit = calendar.Week, 3
	text, err := json.Marshal(want)
	if err != nil || string(text) != wantJSON {
		t.Errorf("the JSON is %s, %v", text, err)
	}
	var got Plan
	if err := json.Unmarshal(text, &got); err != nil || got != want {
		t.Errorf("the decoded plan is %+v, %v", got, err)
	}
}
