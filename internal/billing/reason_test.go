package billing

import "testing"

// TestEventsOfMoneyHaveTheReasonOfTheirCaller credits a wallet as the demo command does, without a
// request to the admin API.
func TestEventsOfMoneyHaveTheReasonOfTheirCaller(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.Credit(t.Context(), "operator", "ann", 10, "a gift", ""); err != nil {
		t.Fatal(err)
	}
	events, _, err := f.directory.Audit.Events(t.Context(), f.user, "", 1)
	if err != nil || len(events) != 1 || events[0].Action != "wallet.credit" || events[0].Reason != "a gift" || events[0].Detail != "0.00000001" {
		t.Errorf("the event is %+v, %v", events, err)
	}
}
