package adminapi

import (
	"net/http"
	"time"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// identityRoutes are the routes that concern users, their keys and their access
// tokens.
var identityRoutes = []endpoint{
	{"GET /modelgate/users", listUsers},
	{"POST /modelgate/users", createUser},
	{"GET /modelgate/users/{user}", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showUser(rt, r)(rt.Directory.User(r.Context(), r.PathValue("user")))
	}},
	{"DELETE /modelgate/users/{user}/factors", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return struct{}{}, rt.Directory.ResetFactors(r.Context(), Operator, r.PathValue("user"))
	}},
	{"POST /modelgate/users/{user}/reset-password", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		code, err := rt.Directory.IssueResetCode(r.Context(), Operator, r.PathValue("user"))
		return OneTimeCode{code.Reveal()}, err
	}},
	{"POST /modelgate/users/{user}/unblock", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return struct{}{}, rt.Directory.Unblock(r.Context(), Operator, r.PathValue("user"))
	}},
	{"POST /modelgate/users/{user}/sign-out", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return struct{}{}, rt.Directory.SignOut(r.Context(), Operator, r.PathValue("user"))
	}},
	{"POST /modelgate/users/{user}/disable", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showUser(rt, r)(rt.Directory.SetUserDisabled(r.Context(), Operator, r.PathValue("user"), true))
	}},
	{"POST /modelgate/users/{user}/enable", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showUser(rt, r)(rt.Directory.SetUserDisabled(r.Context(), Operator, r.PathValue("user"), false))
	}},
	{"POST /modelgate/users/{user}/limits", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		var change identity.LimitsChange
		if err := decode(r, &change); err != nil {
			return nil, err
		}
		return showUser(rt, r)(rt.Directory.ChangeUserLimits(r.Context(), Operator, r.PathValue("user"), change))
	}},
	{"DELETE /modelgate/users/{user}/limits", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return showUser(rt, r)(rt.Directory.SetUserLimits(r.Context(), Operator, r.PathValue("user"), identity.Limits{}))
	}},
	{"POST /modelgate/users/{user}/token", mintToken},
	{"DELETE /modelgate/users/{user}/token", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return struct{}{}, rt.Directory.RevokeToken(r.Context(), Operator, r.PathValue("user"))
	}},
	{"GET /modelgate/keys", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return listKeys(rt, r)
	}},
	{"POST /modelgate/keys", createKey},
	{"POST /modelgate/keys/{key}/limits", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		var change identity.LimitsChange
		if err := decode(r, &change); err != nil {
			return nil, err
		}
		return ofOperator(rt.Directory.ChangeKeyLimits(r.Context(), Operator, r.PathValue("key"), change))
	}},
	{"DELETE /modelgate/keys/{key}/limits", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return ofOperator(rt.Directory.SetKeyLimits(r.Context(), Operator, r.PathValue("key"), identity.Limits{}))
	}},
	{"POST /modelgate/keys/{key}/revoke", func(rt *caddymodule.Runtime, r *http.Request) (any, error) {
		return ofOperator(rt.Directory.RevokeKey(r.Context(), Operator, r.PathValue("key")))
	}},
	{"POST /modelgate/keys/{key}/rotate", rotateKey},
}

// User is a user with the factors of the user beside the password.
type User struct {
	identity.User
	Factors Factors `json:"factors"`
}

// Factors are what a user can prove themselves by beside the password.
type Factors struct {
	TOTP        bool `json:"totp"`
	BackupCodes int  `json:"backup_codes"` // how many are left
	Passkeys    int  `json:"passkeys"`
}

func withFactors(rt *caddymodule.Runtime, r *http.Request, user identity.User) (User, error) {
	factors, err := rt.Directory.Factors(r.Context(), user.ID)
	return User{user, Factors{factors.TOTP, factors.BackupCodes, len(factors.Passkeys)}}, err
}

// showUser returns what shows a user that somebody was asked for.
func showUser(rt *caddymodule.Runtime, r *http.Request) func(identity.User, error) (any, error) {
	return func(user identity.User, err error) (any, error) {
		if err != nil {
			return nil, err
		}
		return withFactors(rt, r, user)
	}
}

func listUsers(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	users, err := rt.Directory.Users(r.Context())
	if err != nil {
		return nil, err
	}
	shown := make([]User, len(users))
	for i, user := range users {
		if shown[i], err = withFactors(rt, r, user); err != nil {
			return nil, err
		}
	}
	return listed(shown, nil)
}

// OneTimeCode is a one-time code, which is shown this once.
type OneTimeCode struct {
	Code string `json:"code"`
}

// createUser makes a user, with a password if one is given: people log in by
// it, programs need none.
func createUser(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		Name     string  `json:"name"`
		Password *string `json:"password"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Password != nil {
		user, err := rt.Directory.CreateUserWithPassword(r.Context(), Operator, in.Name, *in.Password)
		return User{User: user}, err
	}
	user, err := rt.Directory.CreateUser(r.Context(), Operator, in.Name)
	return User{User: user}, err
}

// AccessToken is an access token, which is shown this once.
type AccessToken struct {
	Secret string `json:"access_token,omitempty"`
}

func mintToken(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	secret, err := rt.Directory.MintToken(r.Context(), Operator, r.PathValue("user"))
	return AccessToken{secret.Reveal()}, err
}

// Key is a key as operators are shown it: its scope is the one that they have set.
// It comes with what its owner has set, with the name of its user, where it is listed,
// and with its secret, which is shown this once.
type Key struct {
	identity.Key
	Owner    identity.Scope `json:"owner,omitzero"`
	UserName string         `json:"user_name,omitempty"`
	Secret   string         `json:"api_key,omitempty"`
}

func ofOperator(key identity.Key, err error) (Key, error) {
	shown := Key{Key: key, Owner: key.Scope}
	shown.Scope, shown.Operator = key.Operator, identity.Scope{}
	return shown, err
}

func listKeys(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	keys, err := rt.Directory.Keys(r.Context(), r.URL.Query().Get("user"))
	if err != nil {
		return nil, err
	}
	names, err := userNames(rt, r)
	shown := make([]Key, len(keys))
	for i, key := range keys {
		shown[i], _ = ofOperator(key, nil)
		shown[i].UserName = names[key.UserID]
	}
	return listed(shown, err)
}

// userNames returns the names of all users by their ids.
func userNames(rt *caddymodule.Runtime, r *http.Request) (map[string]string, error) {
	users, err := rt.Directory.Users(r.Context())
	names := make(map[string]string, len(users))
	for _, user := range users {
		names[user.ID] = user.Name
	}
	return names, err
}

func createKey(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		User     string          `json:"user"`
		Name     string          `json:"name"`
		Models   []string        `json:"models"`
		IPRanges []string        `json:"ip_ranges"`
		Expires  int64           `json:"expires"`
		Limits   identity.Limits `json:"limits"`
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.User == "" {
		return nil, fault.At(fault.MissingParameter, "user", "whose key? name a user by id or name")
	}
	spec := identity.KeySpec{Name: in.Name, Models: in.Models, IPRanges: in.IPRanges, Expires: in.Expires, Limits: in.Limits}
	key, secret, err := rt.Directory.CreateKey(r.Context(), Operator, in.User, spec)
	shown, err := ofOperator(key, err)
	shown.Secret = secret.Reveal()
	return shown, err
}

func rotateKey(rt *caddymodule.Runtime, r *http.Request) (any, error) {
	var in struct {
		Grace int64 `json:"grace"` // seconds
	}
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	if in.Grace < 0 || in.Grace > int64(identity.MaxGrace/time.Second) {
		return nil, fault.At(fault.InvalidParameter, "grace", "the grace lies between 0 and %d seconds", int64(identity.MaxGrace/time.Second))
	}
	key, secret, err := rt.Directory.RotateKey(r.Context(), Operator, r.PathValue("key"), time.Duration(in.Grace)*time.Second)
	shown, err := ofOperator(key, err)
	shown.Secret = secret.Reveal()
	return shown, err
}
