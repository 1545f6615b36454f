package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

func listPasskeys(req *request) (any, error) {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	return listed(factors.Passkeys, int64(len(factors.Passkeys)), query.Page{Limit: query.MaxPage}), err
}

type newPasskey struct {
	proof
	Name string `json:"name"`
}

// beginPasskey answers the options for navigator.credentials.create() of a browser.
func beginPasskey(req *request, in newPasskey) (any, error) {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return nil, f
	}
	return req.runtime.Directory.BeginPasskey(req.r.Context(), rp, req.account, in.Password, in.Name)
}

// finishPasskey registers the passkey that navigator.credentials.create() returned.
func finishPasskey(req *request) (any, error) {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return nil, err
	}
	passkey, renewed, err := req.runtime.Directory.FinishPasskey(req.r.Context(), rp, req.account, response)
	return req.renewedWith(passkey, renewed, err)
}

// beginPasskeyLogin answers the options for navigator.credentials.get(). They name no user,
// because the passkey identifies the user.
func beginPasskeyLogin(req *request, _ struct{}) (any, error) {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return nil, f
	}
	options, ceremony, err := req.runtime.Directory.BeginPasskeyLogin(req.r.Context(), rp)
	if err != nil {
		return nil, err
	}
	req.setCeremony(ceremony)
	return options, nil
}

func finishPasskeyLogin(req *request) (any, error) {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return nil, err
	}
	ceremony, err := req.takeCeremony()
	if err != nil {
		return nil, err
	}
	return req.answerLogIn(req.runtime.Directory.FinishPasskeyLogin(req.r.Context(), rp, ceremony, response, auth.Device(req.r), req.console.app.Terms()))
}

func beginPasskeyVerify(req *request, _ struct{}) (any, error) {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return nil, f
	}
	return req.runtime.Directory.BeginPasskeyVerify(req.r.Context(), rp, req.account)
}

func finishPasskeyVerify(req *request) (any, error) {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return nil, err
	}
	return req.renewed(req.runtime.Directory.FinishPasskeyVerify(req.r.Context(), rp, req.account, response))
}

func removePasskey(req *request) (any, error) {
	return req.renewed(req.runtime.Directory.RemovePasskey(req.r.Context(), req.account, req.r.PathValue("id")))
}

// passkeyResponse returns the relying party and the body, which a browser made from the answer
// of its authenticator. The standard may add members, so only the library decodes them. Like all
// bodies here, it must be one strict JSON object, so that two decoders cannot read it differently.
func (req *request) passkeyResponse() (rp identity.RelyingParty, response []byte, err error) {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return rp, nil, f
	}
	var ignored []string
	if f := strictjson.Decode(req.body, &struct{}{}, strictjson.Ignored(&ignored)); f != nil {
		return rp, nil, f
	}
	return rp, req.body, nil
}
