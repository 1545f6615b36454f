package identity

import (
	"context"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Token is a user's access token without its secret. Programs use it for the console, as browsers
// use sessions. It cannot call models. API keys call models, and cannot use the console.
type Token struct {
	ID      string `json:"id"`
	Hint    string `json:"hint"`    // the prefix and the last four characters, for recognition
	Created int64  `json:"created"` // Unix seconds
}

// MintToken creates the access token of a user and returns it; it is shown only here. The earlier
// token ends immediately. For a disabled user, it returns CONFLICT.
func (d *Directory) MintToken(ctx context.Context, actor, idOrName string) (Secret, error) {
	return d.mintToken(ctx, audit.Event{Actor: actor}, idOrName, func(storage.Txn) error { return nil })
}

// MintOwnToken is [Directory.MintToken] for the account's user. It needs a step-up.
func (d *Directory) MintOwnToken(ctx context.Context, a *Account) (Secret, error) {
	return d.mintToken(ctx, audit.Event{Actor: a.UserID, Address: a.Address}, a.UserID, func(t storage.Txn) error { return d.fresh(t, a) })
}

// mintToken creates a token, unless may returns an error. The argument by has the actor and the
// address of the event.
func (d *Directory) mintToken(ctx context.Context, by audit.Event, idOrName string, may func(storage.Txn) error) (Secret, error) {
	secret := credential.AccessToken.Draw()
	hash, _ := credential.AccessToken.Hash(secret.Reveal())
	token := Token{ID: credential.NewID("tok"), Hint: credential.AccessToken.Hint(secret), Created: d.store.Now().Unix()}
	_, err := d.changeAccess(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if err := may(t); err != nil {
			return nil, err
		}
		if user.Disabled {
			return nil, fault.At(fault.Conflict, "user", "the user %q is disabled", user.Name)
		}
		user.Token, user.TokenHash = &token, hash
		return &audit.Event{Actor: by.Actor, Action: "token.mint", User: user.ID, Detail: token.ID, Address: by.Address}, nil
	})
	return secret, err
}

// RevokeToken ends the access token of a user. If there is none, it changes nothing.
func (d *Directory) RevokeToken(ctx context.Context, actor, idOrName string) error {
	_, err := d.changeAccess(ctx, idOrName, func(_ storage.Txn, user *userRecord) (*audit.Event, error) {
		if user.Token == nil {
			return nil, nil
		}
		event := &audit.Event{Actor: actor, Action: "token.revoke", User: user.ID, Detail: user.Token.ID}
		user.Token, user.TokenHash = nil, credential.Hash{}
		return event, nil
	})
	return err
}

// AuthenticateToken returns the account of an access token. It returns the same false for
// text that is not a token, for unknown, replaced and revoked tokens, and for tokens of disabled
// users. It reads only memory.
func (d *Directory) AuthenticateToken(token string) (*Account, bool) {
	hash, ok := credential.AccessToken.Hash(token)
	if !ok {
		return nil, false
	}
	return d.tokens.Find(hash, d.store.Now)
}

// inForce returns the hash of the user's token, if it is in force.
func (u *userRecord) inForce() credential.Entries[Account] {
	if u.Disabled || u.Token == nil {
		return nil
	}
	account := &Account{UserID: u.ID, UserName: u.Name, Role: u.Role, Credential: u.Token.ID}
	return credential.Entries[Account]{u.TokenHash: {Holder: account}}
}
