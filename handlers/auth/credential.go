// Package auth reads the credential of a request and returns its [identity.Principal] or
// [identity.Account]. It has the directives modelgate_auth and modelgate_stepup. [Payer]
// returns the budgets of a principal, and [Subjects] its rate limits.
package auth

import (
	"net/http"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// refusal is the only answer to a key that is unknown, malformed, revoked, expired, or of a
// disabled user. Its bytes are always the same, so that they do not reveal the reason.
var refusal = fault.New(fault.Unauthorized, "the API key is missing or not valid; send it as \"Authorization: Bearer sk-...\" or \"x-api-key: sk-...\"")

// Credential returns the API key of a request, from Authorization or x-api-key only. If the two
// differ, it returns INVALID_PARAMETER, because a server behind the gateway could use the other
// one.
func Credential(header http.Header) (string, *fault.Fault) {
	authorization, f := single(header, "Authorization")
	if f != nil {
		return "", f
	}
	key, f := single(header, "X-Api-Key")
	if f != nil {
		return "", f
	}
	if authorization == "" {
		if key == "" {
			return "", refusal
		}
		return key, nil
	}
	token, ok := bearer(authorization)
	if !ok {
		if key == "" {
			return "", refusal
		}
		return "", fault.At(fault.InvalidParameter, "Authorization", "x-api-key and an Authorization that is not a Bearer token contradict each other; send one credential")
	}
	if key != "" && key != token {
		return "", differ
	}
	return token, nil
}

// differ is the answer to two credentials that differ.
var differ = fault.At(fault.InvalidParameter, "Authorization", "Authorization and x-api-key hold different credentials; send one")

// bearer returns the token of an Authorization header with the Bearer scheme
// (RFC 6750, section 2.1).
func bearer(authorization string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(authorization, " ")
	return strings.TrimLeft(token, " "), ok && strings.EqualFold(scheme, "Bearer")
}

// single returns the only value of a header. Equal repeats are allowed.
func single(header http.Header, name string) (string, *fault.Fault) {
	values := header[name]
	if len(values) == 0 {
		return "", nil
	}
	for _, value := range values[1:] {
		if value != values[0] {
			return "", fault.At(fault.InvalidParameter, name, "%s is given more than once, with different values", name)
		}
	}
	return values[0], nil
}

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
