package auth

import (
	"net/http"
	"testing"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// directory returns a directory with a user, their access token and their key.
func directory(t *testing.T) (d *identity.Directory, token, key string) {
	t.Helper()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	d, err := identity.Open(t.Context(), store, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.CreateUser(t.Context(), "operator", "ann"); err != nil {
		t.Fatal(err)
	}
	minted, err := d.MintToken(t.Context(), "operator", "ann")
	if err != nil {
		t.Fatal(err)
	}
	_, secret, err := d.CreateKey(t.Context(), "operator", "ann", identity.KeySpec{})
	if err != nil {
		t.Fatal(err)
	}
	return d, minted.Reveal(), secret.Reveal()
}

func TestAnAccessTokenIsReadFromOneHeaderOnly(t *testing.T) {
	t.Parallel()
	d, token, key := directory(t)
	for name, c := range map[string]struct {
		header http.Header
		code   fault.Code // empty: admitted
	}{
		"a token":                     {http.Header{"Authorization": {"Bearer " + token}}, ""},
		"another case of the scheme":  {http.Header{"Authorization": {"bearer " + token}}, ""},
		"repeated equal":              {http.Header{"Authorization": {"Bearer " + token, "Bearer " + token}}, ""},
		"equal in x-api-key, too":     {http.Header{"Authorization": {"Bearer " + token}, "X-Api-Key": {token}}, ""},
		"nothing":                     {http.Header{}, fault.NotLoggedIn},
		"an empty bearer":             {http.Header{"Authorization": {"Bearer "}}, fault.NotLoggedIn},
		"a token without a scheme":    {http.Header{"Authorization": {token}}, fault.NotLoggedIn},
		"basic":                       {http.Header{"Authorization": {"Basic " + token}}, fault.NotLoggedIn},
		"a token in x-api-key":        {http.Header{"X-Api-Key": {token}}, fault.NotLoggedIn},
		"a token in a cookie":         {http.Header{"Cookie": {"session=" + token}}, fault.NotLoggedIn},
		"an API key":                  {http.Header{"Authorization": {"Bearer " + key}}, fault.NotLoggedIn},
		"an API key in x-api-key":     {http.Header{"X-Api-Key": {key}}, fault.NotLoggedIn},
		"an invalid token":            {http.Header{"Authorization": {"Bearer mgat_0"}}, fault.NotLoggedIn},
		"a token with a space":        {http.Header{"Authorization": {"Bearer " + token + " "}}, fault.NotLoggedIn},
		"two different":               {http.Header{"Authorization": {"Bearer " + token, "Bearer " + key}}, fault.InvalidParameter},
		"a token and basic":           {http.Header{"Authorization": {"Bearer " + token, "Basic a"}}, fault.InvalidParameter},
		"a token beside an API key":   {http.Header{"Authorization": {"Bearer " + token}, "X-Api-Key": {key}}, fault.InvalidParameter},
		"two different in x-api-key":  {http.Header{"Authorization": {"Bearer " + token}, "X-Api-Key": {token, key}}, fault.InvalidParameter},
		"an API key beside the token": {http.Header{"Authorization": {"Bearer " + key}, "X-Api-Key": {token}}, fault.InvalidParameter},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			account, f := Account((&http.Request{Header: c.header}).WithContext(t.Context()), d, "modelgate_session")
			if c.code == "" {
				if f != nil || account.UserName != "ann" {
					t.Errorf("%+v, %v", account, f)
				}
				return
			}
			if f == nil || f.Code != c.code || account != nil {
				t.Fatalf("answered %v, want %s", f, c.code)
			}
			if c.code == fault.NotLoggedIn && f != ErrUnauthenticated {
				t.Errorf("another error than ErrUnauthenticated: %v", f)
			}
		})
	}
}

func TestAnExpiredAccessTokenIsUnauthenticated(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(*identity.Directory) error{
		"replaced": func(d *identity.Directory) error { _, err := d.MintToken(t.Context(), "operator", "ann"); return err },
		"revoked":  func(d *identity.Directory) error { return d.RevokeToken(t.Context(), "operator", "ann") },
		"disabled": func(d *identity.Directory) error {
			_, err := d.SetUserDisabled(t.Context(), "operator", "ann", true)
			return err
		},
	} {
		d, token, _ := directory(t)
		r := (&http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}).WithContext(t.Context())
		if _, f := Account(r, d, "modelgate_session"); f != nil {
			t.Fatal(f)
		}
		if err := end(d); err != nil {
			t.Fatal(err)
		}
		if account, f := Account(r, d, "modelgate_session"); f != ErrUnauthenticated {
			t.Errorf("%s: %+v, %v", what, account, f)
		}
	}
}
