package auth

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// Stranger is the one answer to whoever the console does not know: without a
// credential, with one of another class, or with one that is malformed, unknown,
// ended, replaced, revoked, or of a disabled user.
var Stranger = fault.New(fault.NotLoggedIn, "nobody is logged in; log in, or send an access token as \"Authorization: Bearer mgat_...\"")

// HalfOpen is the answer to whoever has given his password and not yet his
// second factor, wherever anything else than that is asked for.
var HalfOpen = fault.New(fault.SecondFactorRequired, "the second factor is still due: send its code to /api/user/login/2fa, or log in by passkey")

// Account returns who uses the console: by the access token in Authorization, or
// by the session in the cookie of this name. It is taken from nowhere else; an
// API key opens nothing here. A session may be half-open, which the caller must
// look at.
//
// A Bearer token counts before the cookie, which browsers send by themselves.
// Where both are in force and of different users, neither counts: whoever is
// asked next might pick the other one.
func Account(r *http.Request, directory *identity.Directory, cookie string) (*identity.Account, *fault.Fault) {
	token, f := accessToken(r.Header)
	if f != nil {
		return nil, f
	}
	secret, f := Cookie(r.Header, cookie)
	if f != nil {
		return nil, f
	}
	var session *identity.Account
	if secret != "" {
		found, ok, err := directory.AuthenticateSession(r.Context(), secret)
		if err != nil {
			return nil, fault.FromStore(err)
		}
		if ok {
			session = found
		}
	}
	account := session
	if token != "" {
		var ok bool
		account, ok = directory.AuthenticateToken(token)
		switch {
		case !ok:
			return nil, Stranger
		case session != nil && session.UserID != account.UserID:
			return nil, twoUsers
		}
	}
	if account == nil {
		return nil, Stranger
	}
	here := *account // that of a token is shared
	if addr := Address(r); addr.IsValid() {
		here.Address = addr.String()
	}
	return &here, nil
}

// twoUsers is the answer to a token and a cookie that name different users.
var twoUsers = fault.At(fault.InvalidParameter, "Authorization", "the access token and the session's cookie are of different users; send one")

// accessToken returns what was sent as an access token, of whatever class it is,
// or "". Other schemes than Bearer are not ours: an operator may demand Basic of
// everybody, in front.
func accessToken(header http.Header) (string, *fault.Fault) {
	authorization, f := single(header, "Authorization")
	if f != nil {
		return "", f
	}
	key, f := single(header, "X-Api-Key")
	if f != nil {
		return "", f
	}
	token, ok := bearer(authorization)
	switch {
	case !ok && key == "":
		return "", nil
	case !ok || token == "":
		return "", Stranger
	case key != "" && key != token:
		return "", differ
	}
	return token, nil
}
