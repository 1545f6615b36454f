package auth_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// site is a site in which modelgate_auth guards the operator's own routes.
const site = `
	@guarded path /v1/embeddings* /files/*
	modelgate_auth @guarded
	reverse_proxy /v1/embeddings* BACKEND
	reverse_proxy /files/* BACKEND {
		header_up X-User {http.auth.user.id}
		header_up X-Key {http.modelgate.key_id}
	}
	respond /open "open"
`

func TestAGuardedRouteRequiresAKeyAndRemovesIt(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: site})
	key := g.NewKey(t, nil)
	for _, credential := range []string{"Authorization: Bearer " + key.Secret, "X-Api-Key: " + key.Secret} {
		got := g.Do(t, http.MethodPost, "/files/a?x=1", credential, `{"model":"m"}`)
		if got.Status != http.StatusOK {
			t.Fatalf("answered %d %s", got.Status, got.Body)
		}
	}
	for _, seen := range g.Backend.Seen("m") {
		if seen.Header.Get("Authorization") != "" || seen.Header.Get("X-Api-Key") != "" || seen.URI != "/files/a?x=1" {
			t.Errorf("the backend saw %+v", seen)
		}
		if seen.Header.Get("X-User") != key.UserID || seen.Header.Get("X-Key") != key.ID {
			t.Errorf("the placeholders are %q and %q", seen.Header.Get("X-User"), seen.Header.Get("X-Key"))
		}
	}
	if len(g.Backend.Seen("m")) != 2 {
		t.Errorf("the backend saw %d calls", len(g.Backend.Seen("m")))
	}
	if got := g.Do(t, http.MethodGet, "/open", "", ""); got.Body != "open" {
		t.Errorf("an unguarded path is answered %d", got.Status)
	}
}

func TestAGuardedRouteIsRefusedInTheDialectOfItsPath(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: site})
	key := g.NewKey(t, nil)
	g.MustAdmin(t, http.MethodPost, "/modelgate/keys/"+key.ID+"/revoke", nil, nil)
	for _, credential := range []string{"", "X-Api-Key: " + key.Secret, "Authorization: Basic Zm9vOmJhcg=="} {
		for _, path := range []string{"/v1/embeddings", "/files/a"} {
			got := g.Do(t, http.MethodPost, path, credential, "{}")
			if got.Status != http.StatusUnauthorized || !strings.HasPrefix(got.Body, `{"error":{"code":"UNAUTHORIZED",`) || got.Header.Get("WWW-Authenticate") != "Bearer" || got.RequestID() == "" {
				t.Errorf("%s with %q is answered %d %s", path, credential, got.Status, got.Body)
			}
		}
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("%d calls passed", n)
	}
}

func TestAnAccessTokenCannotCallModels(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: site + gatetest.Proxied})
	key := g.NewKey(t, nil)
	var minted struct {
		Token string `json:"access_token"`
	}
	g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+key.UserID+"/token", nil, &minted)
	for _, path := range []string{"/v1/messages", "/v1/completions", "/v1/chat/completions", "/v1/embeddings"} {
		for _, header := range []string{"Authorization: Bearer ", "X-Api-Key: "} {
			token := g.Do(t, http.MethodPost, path, header+minted.Token, "{}")
			unknown := g.Do(t, http.MethodPost, path, header+"sk-unknown", "{}")
			ids := strings.NewReplacer(token.RequestID(), "ID", unknown.RequestID(), "ID")
			if token.Status != http.StatusUnauthorized || ids.Replace(token.Body) != ids.Replace(unknown.Body) {
				t.Errorf("%s is answered %d %s to an access token, %d %s to an unknown key", path, token.Status, token.Body, unknown.Status, unknown.Body)
			}
		}
	}
	if n := g.Backend.Total(); n != 0 {
		t.Errorf("%d calls passed", n)
	}
}

func TestAMisspeltPathBehindAGuardIs404(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_auth\nrespond passed"})
	key := g.NewKey(t, nil).Secret
	for path, want := range map[string]int{"/v1//messages": 404, "/v1/embeddings": 200, "/x": 200} {
		if got := g.Do(t, http.MethodPost, path, "X-Api-Key: "+key, "{}"); got.Status != want {
			t.Errorf("%s is answered %d %s, want %d", path, got.Status, got.Body, want)
		}
	}
}

func TestAKeyIsCheckedAgainstItsModelsAndAddresses(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{Site: "modelgate_auth\nrespond passed"})
	otherAddress := g.NewKey(t, map[string]any{"ip_ranges": []string{"192.0.2.0/24"}}).Secret
	if got := g.Do(t, http.MethodGet, "/x", "X-Api-Key: "+otherAddress, ""); got.Status != http.StatusForbidden || !strings.Contains(got.Body, "FORBIDDEN") {
		t.Errorf("answered %d %s", got.Status, got.Body)
	}
}

func TestTheCallersAddressComesFromTrustedProxies(t *testing.T) {
	g := gatetest.Start(t, gatetest.Config{
		Global: "servers {\n trusted_proxies static 127.0.0.0/8\n}",
		Site:   "modelgate_auth\nrespond passed",
	})
	key := g.NewKey(t, map[string]any{"ip_ranges": []string{"192.0.2.0/24"}}).Secret
	for forwarded, want := range map[string]int{"192.0.2.7": 200, "198.51.100.1": 403, "::ffff:192.0.2.7": 200, "": 403} {
		headers := "X-Api-Key: " + key
		if forwarded != "" {
			headers += "\nX-Forwarded-For: " + forwarded
		}
		if got := g.Do(t, http.MethodGet, "/x", headers, ""); got.Status != want {
			t.Errorf("from %q: %d, want %d", forwarded, got.Status, want)
		}
	}
}
