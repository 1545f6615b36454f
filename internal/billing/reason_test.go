package billing

import (
	"slices"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/audit"
)

// TestEventsOfMoneyHaveTheReasonOfTheirCaller credits a wallet as the demo command does, without a
// request to the admin API.
func TestEventsOfMoneyHaveTheReasonOfTheirCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.Credit(t.Context(), "operator", "ann", 10, "a gift", ""); err != nil {
		t.Fatal(err)
	}
	events, _, err := f.directory.Audit.Events(t.Context(), f.user, "", 10)
	// The events of one time have no order.
	credit := slices.IndexFunc(events, func(e audit.Event) bool { return e.Action == "wallet.credit" })
	if err != nil || credit < 0 || events[credit].Reason != "a gift" || events[credit].Detail != "0.00000001" {
		t.Errorf("the event is %+v, %v", events, err)
	}
}
