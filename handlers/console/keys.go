package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/query"
)

// shownKey is a key of the user, with its new secret, which is shown once.
type shownKey struct {
	identity.Key
	Secret string `json:"api_key,omitempty"`
}

// mintToken makes the access token of the user and shows it once; the old one ends.
func mintToken(req *request, _ proof) (any, error) {
	secret, err := req.runtime.Directory.MintOwnToken(req.r.Context(), req.account)
	return struct {
		Secret string `json:"access_token"`
	}{secret.Reveal()}, err
}

func revokeToken(req *request) (any, error) {
	return struct{}{}, req.runtime.Directory.RevokeToken(req.r.Context(), req.account.UserID, req.account.UserID)
}

func listKeys(req *request, _ *query.Query, p query.Page) ([]identity.Key, int64, error) {
	keys, err := req.runtime.Directory.OwnKeys(req.r.Context(), req.account)
	return cut(keys, err, p)
}

func showKey(req *request) (any, error) {
	return req.runtime.Directory.OwnKey(req.r.Context(), req.account, req.r.PathValue("id"))
}

type newKey struct {
	identity.KeySpec
	proof
}

func createKey(req *request, in newKey) (any, error) {
	key, secret, err := req.runtime.Directory.CreateOwnKey(req.r.Context(), req.account, in.KeySpec)
	return shownKey{key, secret.Reveal()}, err
}

type keyChange struct {
	identity.KeyChange
	proof
}

// widens reports whether the change may let the key do more than before.
func (c keyChange) widens() bool {
	return c.Models != nil || c.IPRanges != nil || c.Expires != nil || c.Limits != nil || c.CallbackURL != nil
}

// changeKey changes the fields that the body has.
func changeKey(req *request, in keyChange) (any, error) {
	return req.runtime.Directory.ChangeOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), in.KeyChange)
}

func revokeKey(req *request) (any, error) {
	return req.runtime.Directory.RevokeOwnKey(req.r.Context(), req.account, req.r.PathValue("id"))
}

type rotation struct {
	Grace int64 `json:"grace"` // seconds
	proof
}

func (in rotation) check() *fault.Fault {
	if most := int64(identity.MaxGrace / time.Second); in.Grace < 0 || in.Grace > most {
		return fault.At(fault.InvalidParameter, "grace", "`grace` is from 0 to %d seconds", most)
	}
	return nil
}

// rotateKey gives a key a new secret; the old one works for the grace.
func rotateKey(req *request, in rotation) (any, error) {
	key, secret, err := req.runtime.Directory.RotateOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), time.Duration(in.Grace)*time.Second)
	return shownKey{key, secret.Reveal()}, err
}

// renewCallbackSecret makes the secret that signs the callbacks of a key, and shows it once.
func renewCallbackSecret(req *request, _ proof) (any, error) {
	key, secret, err := req.runtime.Directory.RenewCallbackSecret(req.r.Context(), req.account, req.r.PathValue("id"))
	return struct {
		identity.Key
		Secret string `json:"callback_secret"`
	}{key, secret.Reveal()}, err
}
