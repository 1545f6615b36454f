package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/query"
	"github.com/caddy-modelgate/modelgate/money"
)

// ownKey is a key as its user sees it.
type ownKey struct {
	identity.Key
	State string       `json:"state"`           // active, expired or revoked
	Usage *budgetUsage `json:"usage,omitempty"` // nil: the user has set no budget
}

// budgetUsage is what was spent of the budget that a user has set for a key.
type budgetUsage struct {
	Used     money.Amount `json:"used"`                // in the present period
	ResetsAt int64        `json:"resets_at,omitempty"` // Unix seconds
}

// newSecret is a key with its new secret, which is shown once.
type newSecret struct {
	ownKey
	Secret  string `json:"api_key"`
	Example string `json:"example_model,omitempty"` // a model for a first call; empty: the gateway names none
}

// owned returns a key as its user sees it.
func (req *request) owned(key identity.Key, err error) (ownKey, error) {
	shown := ownKey{Key: key, State: "active"}
	switch {
	case err != nil:
		return shown, err
	case key.Revoked != 0:
		shown.State = "revoked"
	case key.Expires != 0 && key.Expires <= req.runtime.Store.Now().Unix():
		shown.State = "expired"
	}
	if key.Limits.Budget == 0 {
		return shown, nil
	}
	used, next, err := req.runtime.Ledger.BudgetUsed(req.r.Context(), key.UserID, ledger.OwnerBudget(key.ID, key.Limits.Budget, key.Limits.Reset))
	shown.Usage = &budgetUsage{Used: used}
	if !next.IsZero() {
		shown.Usage.ResetsAt = next.Unix()
	}
	return shown, err
}

// withSecret returns a key with its new secret.
func (req *request) withSecret(key identity.Key, secret identity.Secret, err error) (any, error) {
	shown, err := req.owned(key, err)
	made := newSecret{ownKey: shown, Secret: secret.Reveal()}
	offered, _ := req.console.app.Offered()
	i := slices.IndexFunc(offered, func(model string) bool {
		_, callable := req.console.app.PriceOf(model, catalog.AnyUnit)
		return callable && (len(key.Models) == 0 || key.Models.Match(req.console.app.Resolve(model)))
	})
	if i >= 0 {
		made.Example = offered[i]
	}
	return made, err
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

func listKeys(req *request, _ *query.Query, p query.Page) (shown []ownKey, total int64, err error) {
	keys, err := req.runtime.Directory.OwnKeys(req.r.Context(), req.account)
	slices.SortStableFunc(keys, func(a, b identity.Key) int { return cmp.Compare(b.Created, a.Created) })
	for _, key := range query.Cut(keys, p) {
		var own ownKey
		own, err = req.owned(key, err)
		shown = append(shown, own)
	}
	return shown, int64(len(keys)), err
}

func showKey(req *request) (any, error) {
	return req.owned(req.runtime.Directory.OwnKey(req.r.Context(), req.account, req.r.PathValue("id")))
}

type newKey struct {
	identity.KeySpec
	proof
}

func createKey(req *request, in newKey) (any, error) {
	return req.withSecret(req.runtime.Directory.CreateOwnKey(req.r.Context(), req.account, in.KeySpec))
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
	return req.owned(req.runtime.Directory.ChangeOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), in.KeyChange))
}

func revokeKey(req *request) (any, error) {
	return req.owned(req.runtime.Directory.RevokeOwnKey(req.r.Context(), req.account, req.r.PathValue("id")))
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
	return req.withSecret(req.runtime.Directory.RotateOwnKey(req.r.Context(), req.account, req.r.PathValue("id"), time.Duration(in.Grace)*time.Second))
}

// renewCallbackSecret makes the secret that signs the callbacks of a key, and shows it once.
func renewCallbackSecret(req *request, _ proof) (any, error) {
	key, secret, err := req.runtime.Directory.RenewCallbackSecret(req.r.Context(), req.account, req.r.PathValue("id"))
	shown, err := req.owned(key, err)
	return struct {
		ownKey
		Secret string `json:"callback_secret"`
	}{shown, secret.Reveal()}, err
}
