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
func mintToken(v *visit) error {
	in, f := decodeMaybe[proof](v)
	if f != nil {
		return f
	}
	if err := v.proveLately(in.Password); err != nil {
		return err
	}
	secret, err := v.runtime.Directory.MintOwnToken(v.r.Context(), v.account)
	if err != nil {
		return err
	}
	return v.answer(shownToken{secret.Reveal()})
}

func revokeToken(v *visit) error {
	if err := v.runtime.Directory.RevokeToken(v.r.Context(), v.account.UserID, v.account.UserID); err != nil {
		return err
	}
	return v.answer(struct{}{})
}

func listKeys(v *visit) error {
	q := v.query()
	p := q.paging()
	if q.fault != nil {
		return q.fault
	}
	keys, err := v.runtime.Directory.OwnKeys(v.r.Context(), v.account)
	if err != nil {
		return err
	}
	return v.answer(cut(keys, p))
}

func showKey(v *visit) error {
	key, err := v.runtime.Directory.OwnKey(v.r.Context(), v.account, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.answer(key)
}

func createKey(v *visit) error {
	in, f := decode[struct {
		identity.KeySpec
		proof
	}](v)
	if f != nil {
		return f
	}
	if err := v.proveAgain(in.Password); err != nil {
		return err
	}
	key, secret, err := v.runtime.Directory.CreateOwnKey(v.r.Context(), v.account, in.KeySpec)
	if err != nil {
		return err
	}
	return v.answer(shownKey{key, secret.Reveal()})
}

// changeKey changes what is named in the body and leaves the rest.
func changeKey(v *visit) error {
	in, f := decode[struct {
		identity.KeyChange
		proof
	}](v)
	if f != nil {
		return f
	}
	if c := in.KeyChange; c.Models != nil || c.IPRanges != nil || c.Expires != nil || c.Limits != nil || c.CallbackURL != nil {
		if err := v.proveChange(in.Password); err != nil {
			return err
		}
	}
	key, err := v.runtime.Directory.ChangeOwnKey(v.r.Context(), v.account, v.r.PathValue("id"), in.KeyChange)
	if err != nil {
		return err
	}
	return v.answer(key)
}

func revokeKey(v *visit) error {
	key, err := v.runtime.Directory.RevokeOwnKey(v.r.Context(), v.account, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.answer(key)
}

// rotateKey gives a key a new secret; the old one works for the grace.
func rotateKey(v *visit) error {
	in, f := decodeMaybe[struct {
		Grace int64 `json:"grace"` // seconds
		proof
	}](v)
	if f != nil {
		return f
	}
	most := int64(identity.MaxGrace / time.Second)
	if in.Grace < 0 || in.Grace > most {
		return fault.At(fault.InvalidParameter, "grace", "`grace` is from 0 to %d seconds", most)
	}
	if err := v.proveLately(in.Password); err != nil {
		return err
	}
	key, secret, err := v.runtime.Directory.RotateOwnKey(v.r.Context(), v.account, v.r.PathValue("id"), time.Duration(in.Grace)*time.Second)
	if err != nil {
		return err
	}
	return v.answer(shownKey{key, secret.Reveal()})
}

// renewCallbackSecret makes the secret by which callbacks of a key are signed,
// and shows it, this once.
func renewCallbackSecret(v *visit) error {
	in, f := decodeMaybe[proof](v)
	if f != nil {
		return f
	}
	if err := v.proveLately(in.Password); err != nil {
		return err
	}
	key, secret, err := v.runtime.Directory.RenewCallbackSecret(v.r.Context(), v.account, v.r.PathValue("id"))
	if err != nil {
		return err
	}
	return v.answer(struct {
		identity.Key
		Secret string `json:"callback_secret"`
	}{key, secret.Reveal()})
}
