package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// shownKey is a key of the user, with its secret where that was just made: it is
// shown this once.
type shownKey struct {
	identity.Key
	Secret string `json:"api_key,omitempty"`
}

// shownToken is an access token, which is shown this once.
type shownToken struct {
	Secret string `json:"access_token"`
}

// mintToken makes the user's access token; the one before ends.
func mintToken(req *request) error {
	in, f := decodeMaybe[proof](req)
	if f != nil {
		return f
	}
	if err := req.proveLately(in.Password); err != nil {
		return err
	}
	secret, err := req.runtime.Directory.MintOwnToken(req.r.Context(), req.account)
	if err != nil {
		return err
	}
	return req.answer(shownToken{secret.Reveal()})
}

func revokeToken(req *request) error {
	if err := req.runtime.Directory.RevokeToken(req.r.Context(), req.account.UserID, req.account.UserID); err != nil {
		return err
	}
	return req.answer(struct{}{})
}

func listKeys(req *request) error {
	q := req.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	keys, err := req.runtime.Directory.OwnKeys(req.r.Context(), req.account)
	if err != nil {
		return err
	}
	return req.answer(cut(keys, p))
}

func showKey(req *request) error {
	key, err := req.runtime.Directory.OwnKey(req.r.Context(), req.account, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	return req.answer(key)
}

func createKey(req *request) error {
	in, f := decode[struct {
		identity.KeySpec
		proof
	}](req)
	if f != nil {
		return f
	}
	if err := req.proveAgain(in.Password); err != nil {
		return err
	}
	key, secret, err := req.runtime.Directory.CreateOwnKey(req.r.Context(), req.account, in.KeySpec)
	if err != nil {
		return err
	}
	return req.answer(shownKey{key, secret.Reveal()})
}

// changeKey changes what is named in the body and leaves the rest.
func changeKey(req *request) error {
	in, f := decode[struct {
		identity.KeyChange
		proof
	}](req)
	if f != nil {
		return f
	}
	if c := in.KeyChange; c.Models != nil || c.IPRanges != nil || c.Expires != nil || c.Limits != nil || c.CallbackURL != nil {
		if err := req.proveChange(in.Password); err != nil {
			return err
		}
	}
	key, err := req.runtime.Directory.ChangeOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), in.KeyChange)
	if err != nil {
		return err
	}
	return req.answer(key)
}

func revokeKey(req *request) error {
	key, err := req.runtime.Directory.RevokeOwnKey(req.r.Context(), req.account, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	return req.answer(key)
}

// rotateKey gives a key a new secret; the old one works for the grace.
func rotateKey(req *request) error {
	in, f := decodeMaybe[struct {
		Grace int64 `json:"grace"` // seconds
		proof
	}](req)
	if f != nil {
		return f
	}
	most := int64(identity.MaxGrace / time.Second)
	if in.Grace < 0 || in.Grace > most {
		return fault.At(fault.InvalidParameter, "grace", "`grace` is from 0 to %d seconds", most)
	}
	if err := req.proveLately(in.Password); err != nil {
		return err
	}
	key, secret, err := req.runtime.Directory.RotateOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), time.Duration(in.Grace)*time.Second)
	if err != nil {
		return err
	}
	return req.answer(shownKey{key, secret.Reveal()})
}

// renewCallbackSecret makes the secret by which callbacks of a key are signed,
// and shows it, this once.
func renewCallbackSecret(req *request) error {
	in, f := decodeMaybe[proof](req)
	if f != nil {
		return f
	}
	if err := req.proveLately(in.Password); err != nil {
		return err
	}
	key, secret, err := req.runtime.Directory.RenewCallbackSecret(req.r.Context(), req.account, req.r.PathValue("id"))
	if err != nil {
		return err
	}
	return req.answer(struct {
		identity.Key
		Secret string `json:"callback_secret"`
	}{key, secret.Reveal()})
}
