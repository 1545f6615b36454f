package auth

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// ErrUnauthenticated is the only answer of the console to a request that is not authenticated. Its
// credential is missing, of another class, malformed, unknown, ended, replaced, revoked, or of a
// disabled user.
var ErrUnauthenticated = fault.New(fault.NotLoggedIn, "the request is not logged in: log in, or send an access token as \"Authorization: Bearer mgat_...\"")

// HalfOpen is the answer to a half-open session if a request needs more than that. The session
// has proved the password, and the second factor is due.
var HalfOpen = fault.New(fault.SecondFactorRequired, "the second factor is still due: send its code to /api/user/login/2fa, or log in by passkey")

// Account returns the account of a console request, by the access token in Authorization or by
// the session in the cookie of this name. It does not accept an API key. The session may be
// half-open, which the caller checks.
//
// A Bearer token takes precedence over the cookie, which browsers send automatically. If both are
// valid and of different users, the request is refused, because a server behind the gateway might
// use the other one.
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
			return nil, ErrUnauthenticated
		case session != nil && session.UserID != account.UserID:
			return nil, twoUsers
		}
	}
	if account == nil {
		return nil, ErrUnauthenticated
	}
	here := *account // the account of a token is shared
	if addr := Address(r); addr.IsValid() {
		here.Address = addr.String()
	}
	return &here, nil
}

// twoUsers is the answer to a token and a cookie that name different users.
var twoUsers = fault.At(fault.InvalidParameter, "Authorization", "the access token and the session's cookie are of different users; send one")

// accessToken returns the text that was sent as an access token, of any class, or "". Schemes
// other than Bearer are ignored, because an operator may require Basic in addition.
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
		return "", ErrUnauthenticated
	case key != "" && key != token:
		return "", differ
	}
	return token, nil
}
