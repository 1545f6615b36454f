package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

func listPasskeys(req *request) error {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	return req.answer(listed(factors.Passkeys, int64(len(factors.Passkeys)), query.Page{Limit: query.MaxPage}))
}

type newPasskey struct {
	proof
	Name string `json:"name"`
}

// beginPasskey answers what navigator.credentials.create of a browser takes.
func beginPasskey(req *request, in newPasskey) error {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, err := req.runtime.Directory.BeginPasskey(req.r.Context(), rp, req.account, in.Password, in.Name)
	if err != nil {
		return err
	}
	return req.answer(options)
}

// finishPasskey takes what navigator.credentials.create returned.
func finishPasskey(req *request) error {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return err
	}
	passkey, renewed, err := req.runtime.Directory.FinishPasskey(req.r.Context(), rp, req.account, response)
	if err != nil {
		return err
	}
	req.renewSession(renewed)
	return req.answer(passkey)
}

// beginPasskeyLogin answers what navigator.credentials.get takes. It names no user: the
// passkey does.
func beginPasskeyLogin(req *request, _ struct{}) error {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, ceremony, err := req.runtime.Directory.BeginPasskeyLogin(req.r.Context(), rp)
	if err != nil {
		return err
	}
	req.setCeremony(ceremony)
	return req.answer(options)
}

func finishPasskeyLogin(req *request) error {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return err
	}
	ceremony, err := req.takeCeremony()
	if err != nil {
		return err
	}
	entry, err := req.runtime.Directory.FinishPasskeyLogin(req.r.Context(), rp, ceremony, response, auth.Device(req.r), req.console.app.Terms())
	if err != nil {
		return err
	}
	return req.answerLogIn(entry)
}

func beginPasskeyVerify(req *request, _ struct{}) error {
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, err := req.runtime.Directory.BeginPasskeyVerify(req.r.Context(), rp, req.account)
	if err != nil {
		return err
	}
	return req.answer(options)
}

func finishPasskeyVerify(req *request) error {
	rp, response, err := req.passkeyResponse()
	if err != nil {
		return err
	}
	renewed, err := req.runtime.Directory.FinishPasskeyVerify(req.r.Context(), rp, req.account, response)
	if err != nil {
		return err
	}
	req.renewSession(renewed)
	return req.answer(struct{}{})
}

func removePasskey(req *request) error {
	renewed, err := req.runtime.Directory.RemovePasskey(req.r.Context(), req.account, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	req.renewSession(renewed)
	return req.answer(struct{}{})
}

// passkeyResponse returns the body as a browser made it from the answer of its
// authenticator, and the site of the passkeys. The standard may add members, so that only
// the library knows them. But the body is one strict JSON object, as all bodies here: two
// readers cannot read it differently.
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
