package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

func listPasskeys(req *request) error {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	return req.answer(listed(factors.Passkeys, int64(len(factors.Passkeys)), paging{1, maxSize}))
}

// beginPasskey answers what a browser's navigator.credentials.create takes.
func beginPasskey(req *request) error {
	in, f := decodeMaybe[struct {
		proof
		Name string `json:"name"`
	}](req)
	if f != nil {
		return f
	}
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

// finishPasskey takes what it gave back.
func finishPasskey(req *request) error {
	rp, response, err := req.credential()
	if err != nil {
		return err
	}
	passkey, renewed, err := req.runtime.Directory.FinishPasskey(req.r.Context(), rp, req.account, response)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(passkey)
}

// beginPasskeyLogin answers what navigator.credentials.get takes. It names
// nobody: who comes is told by the passkey.
func beginPasskeyLogin(req *request) error {
	if _, f := decodeMaybe[struct{}](req); f != nil {
		return f
	}
	rp, f := req.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, ceremony, err := req.runtime.Directory.BeginPasskeyLogin(req.r.Context(), rp)
	if err != nil {
		return err
	}
	req.keepCeremony(ceremony)
	return req.answer(options)
}

func finishPasskeyLogin(req *request) error {
	rp, response, err := req.credential()
	if err != nil {
		return err
	}
	ceremony, err := req.ceremony()
	if err != nil {
		return err
	}
	entry, err := req.runtime.Directory.FinishPasskeyLogin(req.r.Context(), rp, ceremony, response, auth.Device(req.r), req.console.app.Terms())
	if err != nil {
		return err
	}
	return req.welcome(entry)
}

func beginPasskeyVerify(req *request) error {
	if _, f := decodeMaybe[struct{}](req); f != nil {
		return f
	}
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
	rp, response, err := req.credential()
	if err != nil {
		return err
	}
	renewed, err := req.runtime.Directory.FinishPasskeyVerify(req.r.Context(), rp, req.account, response)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(struct{}{})
}

func removePasskey(req *request) error {
	renewed, err := req.runtime.Directory.RemovePasskey(req.r.Context(), req.account, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(struct{}{})
}

// credential returns the body as a browser made it of what its authenticator
// said, and for whom passkeys are. Its members are the standard's and grow with
// it, so they are for the library to know; but the body is one strict JSON
// object, as every other here, so that two readers cannot read it differently.
func (req *request) credential() (rp identity.RelyingParty, response []byte, err error) {
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
