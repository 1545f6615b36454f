package console

import (
	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

func listPasskeys(v *visit) error {
	factors, err := v.runtime.Directory.Factors(v.r.Context(), v.account.UserID)
	if err != nil {
		return err
	}
	return v.answer(listed(factors.Passkeys, int64(len(factors.Passkeys)), paging{1, maxSize}))
}

// beginPasskey answers what a browser's navigator.credentials.create takes.
func beginPasskey(v *visit) error {
	in, f := decodeMaybe[struct {
		proof
		Name string `json:"name"`
	}](v)
	if f != nil {
		return f
	}
	rp, f := v.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, err := v.runtime.Directory.BeginPasskey(v.r.Context(), rp, v.account, in.Password, in.Name)
	if err != nil {
		return err
	}
	return v.answer(options)
}

// finishPasskey takes what it gave back.
func finishPasskey(v *visit) error {
	rp, response, err := v.credential()
	if err != nil {
		return err
	}
	passkey, renewed, err := v.runtime.Directory.FinishPasskey(v.r.Context(), rp, v.account, response)
	if err != nil {
		return err
	}
	v.renew(renewed)
	return v.answer(passkey)
}

// beginPasskeyLogin answers what navigator.credentials.get takes. It names
// nobody: who comes is told by the passkey.
func beginPasskeyLogin(v *visit) error {
	if _, f := decodeMaybe[struct{}](v); f != nil {
		return f
	}
	rp, f := v.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, ceremony, err := v.runtime.Directory.BeginPasskeyLogin(v.r.Context(), rp)
	if err != nil {
		return err
	}
	v.keepCeremony(ceremony)
	return v.answer(options)
}

func finishPasskeyLogin(v *visit) error {
	rp, response, err := v.credential()
	if err != nil {
		return err
	}
	ceremony, err := v.ceremony()
	if err != nil {
		return err
	}
	entry, err := v.runtime.Directory.FinishPasskeyLogin(v.r.Context(), rp, ceremony, response, auth.Device(v.r), v.console.app.Terms())
	if err != nil {
		return err
	}
	return v.welcome(entry)
}

func beginPasskeyVerify(v *visit) error {
	if _, f := decodeMaybe[struct{}](v); f != nil {
		return f
	}
	rp, f := v.console.app.RelyingParty()
	if f != nil {
		return f
	}
	options, err := v.runtime.Directory.BeginPasskeyVerify(v.r.Context(), rp, v.account)
	if err != nil {
		return err
	}
	return v.answer(options)
}

func finishPasskeyVerify(v *visit) error {
	rp, response, err := v.credential()
	if err != nil {
		return err
	}
	renewed, err := v.runtime.Directory.FinishPasskeyVerify(v.r.Context(), rp, v.account, response)
	if err != nil {
		return err
	}
	v.renew(renewed)
	return v.answer(struct{}{})
}

func removePasskey(v *visit) error {
	renewed, err := v.runtime.Directory.RemovePasskey(v.r.Context(), v.account, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	v.renew(renewed)
	return v.answer(struct{}{})
}

// credential returns the body as a browser made it of what its authenticator
// said, and for whom passkeys are. Its members are the standard's and grow with
// it, so they are for the library to know; but the body is one strict JSON
// object, as every other here, so that two readers cannot read it differently.
func (v *visit) credential() (rp identity.RelyingParty, response []byte, err error) {
	rp, f := v.console.app.RelyingParty()
	if f != nil {
		return rp, nil, f
	}
	var ignored []string
	if f := strictjson.Decode(v.body, &struct{}{}, strictjson.Ignored(&ignored)); f != nil {
		return rp, nil, f
	}
	return rp, v.body, nil
}
