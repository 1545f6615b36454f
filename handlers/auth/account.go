package auth

import (
	"net/http"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// stranger is the one answer to whoever the console does not know: without a
// credential, with one of another class, or with one that is malformed, unknown,
// replaced, revoked, or of a disabled user.
var stranger = fault.New(fault.NotLoggedIn, "nobody is logged in; send an access token as \"Authorization: Bearer mgat_...\"")

// AccessToken returns who uses the console by the access token of r. It is taken
// from Authorization and from nowhere else; an API key opens nothing here.
// Sessions join it at this place: whichever of the two came, the console sees
// an account.
func AccessToken(r *http.Request, directory *identity.Directory) (*identity.Account, *fault.Fault) {
	authorization, f := single(r.Header, "Authorization")
	if f != nil {
		return nil, f
	}
	key, f := single(r.Header, "X-Api-Key")
	if f != nil {
		return nil, f
	}
	token, ok := bearer(authorization)
	if !ok {
		return nil, stranger
	}
	if key != "" && key != token {
		return nil, differ
	}
	account, ok := directory.AuthenticateToken(token)
	if !ok {
		return nil, stranger
	}
	return account, nil
}
