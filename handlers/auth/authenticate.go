package auth

import (
	"net/http"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// principalVar is the request variable in which modelgate_auth stores the principal for later
// directives, because it removes the credential.
const principalVar = "modelgate.principal"

// Authenticate returns the principal of a request.
func Authenticate(r *http.Request, directory *identity.Directory) (*identity.Principal, *fault.Fault) {
	if p, ok := caddyhttp.GetVar(r.Context(), principalVar).(*identity.Principal); ok {
		return p, nil
	}
	key, f := Credential(r.Header)
	if f != nil {
		return nil, f
	}
	p, ok := directory.Authenticate(key)
	if !ok {
		return nil, refusal
	}
	if !p.MayCallFrom(Address(r)) {
		return nil, fault.New(fault.Forbidden, "this API key may not be used from your address")
	}
	return p, nil
}
