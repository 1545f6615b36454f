package call_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// TestTheUsageRouteShowsTheLimitsOfTheUser reads the limits that apply to all keys of the user.
func TestTheUsageRouteShowsTheLimitsOfTheUser(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{App: prices, Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.Credit(t, key.UserID, "1.00")
	type limits struct {
		Budget *struct {
			Limit, Used, Remaining, Reset string
			ResetsAt                      int64 `json:"resets_at"`
		}
		Rates map[string]*int64
	}
	usage := func() (answer struct {
		limits
		User limits
	}) {
		t.Helper()
		got := g.Do(t, http.MethodGet, "/v1/usage", "Authorization: Bearer "+key.Secret, "")
		if err := json.Unmarshal([]byte(got.Body), &answer); err != nil || got.Status != http.StatusOK || !strings.Contains(got.Body, `"user":{"budget":`) {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
		return answer
	}
	if got := usage(); got.User.Budget != nil || len(got.User.Rates) != 3 || got.User.Rates["streams"] != nil {
		t.Errorf("without limits: %+v", got)
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+key.UserID+"/limits",
		map[string]any{"budget": "0.50", "reset": "day", "streams": 7, "requests_per_second": 50}, nil)
	g.Backend.On("priced", gatetest.JSON(200, messageAnswer))
	post(t, g, messages, key.Secret, "priced", "")
	g.WalletAtRest(t, key.UserID)
	got := usage()
	if b := got.User.Budget; b == nil || b.Limit != "0.50" || b.Used != "0.000000049" || b.Remaining != "0.499999951" || b.Reset != "day" || b.ResetsAt == 0 {
		t.Errorf("the budget of the user is %+v", b)
	}
	if r := got.User.Rates; *r["streams"] != 7 || *r["requests_per_second"] != 50 || r["tokens_per_minute"] != nil {
		t.Errorf("the rates of the user are %v", r)
	}
	if got.Budget != nil || got.Rates["streams"] != nil {
		t.Errorf("the key without limits has %+v", got.limits)
	}
}
