package adminapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestAdminRoutesRefuseInvalidRequests(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "taken"}, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]string{"name": "shut"}, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/shut/disable", nil, nil)
	type body = map[string]any
	refuses(t, g, []refusal{
		{"POST", "/modelgate/users", body{"name": "Taken"}, 409, "CONFLICT", "name"},
		{"POST", "/modelgate/users", body{"name": ""}, 400, "INVALID_PARAMETER", "name"},
		{"POST", "/modelgate/users", body{"name": 7}, 400, "INVALID_PARAMETER", "name"},
		{"POST", "/modelgate/users", body{"nmae": "x"}, 400, "INVALID_PARAMETER", "nmae"},
		{"POST", "/modelgate/users", []int{}, 400, "INVALID_JSON", ""},
		{"POST", "/modelgate/users", body{"name": strings.Repeat("x", 70_000)}, 413, "PAYLOAD_TOO_LARGE", ""},
		{"GET", "/modelgate/users/nobody", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/users/nobody/disable", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/keys", body{}, 400, "MISSING_PARAMETER", "user"},
		{"POST", "/modelgate/keys", body{"user": "nobody"}, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/keys", body{"user": "shut"}, 409, "CONFLICT", "user"},
		{"POST", "/modelgate/keys", body{"user": "taken", "models": []string{"a*b"}}, 400, "INVALID_PARAMETER", "models"},
		{"POST", "/modelgate/keys", body{"user": "taken", "ip_ranges": []string{"here"}}, 400, "INVALID_PARAMETER", "ip_ranges"},
		{"POST", "/modelgate/keys", body{"user": "taken", "expires": 1}, 400, "INVALID_PARAMETER", "expires"},
		{"GET", "/modelgate/keys?user=nobody", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/keys/key_0/revoke", nil, 404, "NOT_FOUND", "key"},
		{"POST", "/modelgate/keys/" + key.ID + "/rotate", body{"grace": -1}, 400, "INVALID_PARAMETER", "grace"},
		{"POST", "/modelgate/keys/" + key.ID + "/rotate", body{"grace": 31 * 86400}, 400, "INVALID_PARAMETER", "grace"},
		{"POST", "/modelgate/keys", body{"user": "taken", "limits": body{"streams": -1}}, 400, "INVALID_PARAMETER", "limits.streams"},
		{"POST", "/modelgate/keys", body{"user": "taken", "limits": body{"budget": 9.9}}, 400, "INVALID_PARAMETER", "limits.budget"},
		{"POST", "/modelgate/keys", body{"user": "taken", "limits": body{"speed": 1}}, 400, "INVALID_PARAMETER", "limits.speed"},
		{"POST", "/modelgate/users/taken/limits", body{"budget": "-1"}, 400, "INVALID_PARAMETER", "budget"},
		{"POST", "/modelgate/users/taken/limits", body{"budget": "1e3"}, 400, "INVALID_PARAMETER", "budget"},
		{"POST", "/modelgate/users/taken/limits", body{"reset": "month"}, 400, "INVALID_PARAMETER", "reset"},
		{"POST", "/modelgate/users/taken/limits", body{"requests_per_second": 0.5}, 400, "INVALID_PARAMETER", "requests_per_second"},
		{"POST", "/modelgate/users/nobody/limits", body{}, 404, "NOT_FOUND", "user"},
		{"DELETE", "/modelgate/users/nobody/limits", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/keys/" + key.ID + "/limits", body{"tokens_per_minute": 1 << 40}, 400, "INVALID_PARAMETER", "tokens_per_minute"},
		{"POST", "/modelgate/keys/key_0/limits", body{"streams": 1}, 404, "NOT_FOUND", "key"},
		{"DELETE", "/modelgate/keys/key_0/limits", nil, 404, "NOT_FOUND", "key"},
		{"POST", "/modelgate/users/nobody/token", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/users/shut/token", nil, 409, "CONFLICT", "user"},
		{"DELETE", "/modelgate/users/nobody/token", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/users", body{"name": "weak", "password": "short"}, 400, "INVALID_PARAMETER", "password"},
		{"POST", "/modelgate/users", body{"name": "weak", "password": ""}, 400, "MISSING_PARAMETER", "password"},
		{"GET", "/modelgate/users/weak", nil, 404, "NOT_FOUND", "user"},
		{"DELETE", "/modelgate/users/nobody/factors", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/users/nobody/reset-password", nil, 404, "NOT_FOUND", "user"},
		{"POST", "/modelgate/users/nobody/sign-out", nil, 404, "NOT_FOUND", "user"},
		{"GET", "/modelgate/orders?user=nobody", nil, 404, "NOT_FOUND", "user"},
		{"GET", "/modelgate/orders?status=late", nil, 400, "INVALID_PARAMETER", "status"},
		{"GET", "/modelgate/orders?from=2026-11-2", nil, 400, "INVALID_PARAMETER", "from"},
		{"GET", "/modelgate/orders?from=2026-11-02&to=2026-11-01", nil, 400, "INVALID_PARAMETER", "to"},
		{"GET", "/modelgate/orders?from=2026-11-02T14:00:00Z&to=2026-11-02T14:00:00Z", nil, 400, "INVALID_PARAMETER", "to"},
		{"GET", "/modelgate/orders?to=2026-11-02T14:00", nil, 400, "INVALID_PARAMETER", "to"},
		{"GET", "/modelgate/calls?from=2026-11-02&to=2026-11-01", nil, 400, "INVALID_PARAMETER", "to"},
		{"GET", "/modelgate/orders?after=x", nil, 400, "INVALID_PARAMETER", "after"},
		{"GET", "/modelgate/orders?limit=0", nil, 400, "INVALID_PARAMETER", "limit"},
		{"GET", "/modelgate/orders/x", nil, 404, "NOT_FOUND", "trade_no"},
		{"GET", "/modelgate/mismatches?kind=lost", nil, 400, "INVALID_PARAMETER", "kind"},
		{"GET", "/modelgate/mismatches?status=closed", nil, 400, "INVALID_PARAMETER", "status"},
		{"GET", "/modelgate/mismatches?after=x", nil, 400, "INVALID_PARAMETER", "after"},
		{"POST", "/modelgate/mismatches/x/resolve", body{"reason": "y"}, 404, "NOT_FOUND", "id"},
		{"POST", "/modelgate/mismatches/x/resolve", body{}, 400, "MISSING_PARAMETER", "reason"},
		{"GET", "/modelgate/payments?group=user", nil, 400, "INVALID_PARAMETER", "group"},
		{"GET", "/modelgate/payments?totals=true&format=csv", nil, 400, "INVALID_PARAMETER", "totals"},
		{"GET", "/modelgate/ledger?to=tomorrow", nil, 400, "INVALID_PARAMETER", "to"},
		{"GET", "/modelgate/secret/rotate", nil, 404, "NOT_FOUND", ""},
		{"GET", "/modelgate/", nil, 404, "NOT_FOUND", ""},
		{"GET", "/modelgate/nothing", nil, 404, "NOT_FOUND", ""},
		{"DELETE", "/modelgate/users/taken", nil, 404, "NOT_FOUND", ""},
	})
}

// refusal is a request that an admin route refuses, with the expected answer.
type refusal struct {
	method, path string
	in           any
	status       int
	code, param  string
}

func refuses(t *testing.T, g *gatetest.Gate, refusals []refusal) {
	t.Helper()
	for _, c := range refusals {
		status, answer := g.Admin(t, c.method, c.path, c.in)
		var got struct{ Code, Message, Param string }
		if err := json.Unmarshal(answer, &got); err != nil {
			t.Errorf("%s %s: %v: %s", c.method, c.path, err, answer)
		}
		if status != c.status || got.Code != c.code || got.Param != c.param || got.Message == "" {
			t.Errorf("%s %s: got %d %s, want %d %s for %q", c.method, c.path, status, answer, c.status, c.code, c.param)
		}
	}
}

func TestASecretIsShownOnceAndNeverListedOrLogged(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)
	var rotated gatetest.Key
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/rotate", map[string]any{"grace": 60}, &rotated)
	if rotated.ID != key.ID || rotated.Secret == "" || rotated.Secret == key.Secret {
		t.Fatalf("the rotation of %+v returned %+v", key, rotated)
	}
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+key.UserID+"/token", nil, &minted)
	if !strings.HasPrefix(minted.Token, "mgat_") || g.Logged(minted.Token) {
		t.Errorf("the access token %q, in the log: %v", minted.Token, g.Logged(minted.Token))
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users", map[string]any{"name": "person", "password": gatetest.Password}, nil)
	for _, path := range []string{"/modelgate/keys", "/modelgate/users", "/modelgate/users/person", "/modelgate/users/" + key.UserID, "/modelgate/status", "/modelgate/keys?user=" + key.UserID} {
		_, answer := g.Admin(t, http.MethodGet, path, nil)
		for _, secret := range []string{key.Secret, rotated.Secret, minted.Token, `"hash"`, `"previous":`, `"token_hash"`, `"password"`, "argon2", gatetest.Password} {
			if strings.Contains(string(answer), secret) {
				t.Errorf("%s shows %s", path, answer)
			}
		}
	}
	for _, secret := range []string{key.Secret, rotated.Secret} {
		if g.Logged(secret) {
			t.Error("a secret is in the log")
		}
		if got := g.Do(t, http.MethodGet, "/v1/models", "Authorization: Bearer "+secret, ""); got.Status != http.StatusOK {
			t.Errorf("a valid secret gets %d", got.Status)
		}
	}
}

func TestStatusReportsTheRuntime(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_messages {\n models b a\n reverse_proxy BACKEND\n}"})
	g.NewKey(t, nil)
	var status struct {
		Ready              bool
		Reason, Store      string
		Users, Credentials int
		Models             []string
		Calls_In_Flight    int
	}
	g.MustAdmin(t, http.MethodGet, "/modelgate/status", nil, &status)
	if !status.Ready || status.Reason != "" || status.Store != "gatetest:"+g.Store || status.Users != 1 || status.Credentials != 1 || fmt.Sprint(status.Models) != "[a b]" {
		t.Errorf("%+v", status)
	}
	g.FailStore(t)
	g.MustAdmin(t, http.MethodGet, "/modelgate/status", nil, &status)
	if status.Ready || !strings.Contains(status.Reason, "sync failed") {
		t.Errorf("after a fail stop: %+v", status)
	}
}

func TestAdminRoutesAre404WithoutModelgateInTheConfiguration(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	if err := g.ReloadText("{\n admin " + g.AdminAddress + "\n persist_config off\n}\n"); err != nil {
		t.Fatal(err)
	}
	if status, answer := g.Admin(t, http.MethodGet, "/modelgate/status", nil); status != http.StatusNotFound || !strings.Contains(string(answer), "has no modelgate option") {
		t.Errorf("got %d %s", status, answer)
	}
}

func TestTheSiteDoesNotServeAdminRoutes(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied + "\nrespond site"})
	for _, path := range []string{"/modelgate/users", "/modelgate/status", "/config/"} {
		if got := g.Do(t, http.MethodGet, path, "", ""); got.Body != "site" {
			t.Errorf("%s gets %d %s on the site", path, got.Status, got.Body)
		}
	}
}
