package identity

import (
	"context"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Token is a user's access token as it is shown: everything but itself. It
// opens the console to programs, as a session does to a browser, and never a
// model: API keys and access tokens do not stand in for each other.
type Token struct {
	ID      string `json:"id"`
	Hint    string `json:"hint"`    // prefix and last four, to recognise it by
	Created int64  `json:"created"` // Unix seconds
}

// MintToken makes the access token of a user and returns it, which is done this
// once. The token before it ends at once. A disabled user gets none.
func (d *Directory) MintToken(ctx context.Context, actor, idOrName string) (Secret, error) {
	secret := tokenForm.draw()
	hash, _ := tokenForm.hash(secret.Reveal())
	token := Token{ID: newID("tok"), Hint: tokenForm.hint(secret), Created: d.store.Now().Unix()}
	err := d.changeToken(ctx, idOrName, func(user *userRecord) (*Event, error) {
		if user.Disabled {
			return nil, fault.At(fault.Conflict, "user", "the user %q is disabled", user.Name)
		}
		user.Token, user.TokenHash = &token, hash[:]
		return &Event{Actor: actor, Action: "token.mint", User: user.ID, Detail: token.ID}, nil
	})
	if err != nil {
		return "", err
	}
	return secret, nil
}

// RevokeToken ends the access token of a user. Where there is none it changes
// nothing.
func (d *Directory) RevokeToken(ctx context.Context, actor, idOrName string) error {
	return d.changeToken(ctx, idOrName, func(user *userRecord) (*Event, error) {
		if user.Token == nil {
			return nil, nil
		}
		event := &Event{Actor: actor, Action: "token.revoke", User: user.ID, Detail: user.Token.ID}
		user.Token, user.TokenHash = nil, nil
		return event, nil
	})
}

// AuthenticateToken returns whose access token this is. It answers false alike
// for junk, unknown, replaced and revoked tokens and for those of disabled
// users. It reads memory only.
func (d *Directory) AuthenticateToken(token string) (*Account, bool) {
	hash, ok := tokenForm.hash(token)
	if !ok {
		return nil, false
	}
	return d.tokens.find(hash, d.store.Now)
}

// changeToken runs fn over a user in one transaction and brings the token in
// memory up to it.
func (d *Directory) changeToken(ctx context.Context, idOrName string, fn func(*userRecord) (*Event, error)) error {
	_, err := d.changeAccess(ctx, idOrName, func(_ storage.Txn, user *userRecord) (*Event, error) { return fn(user) })
	return err
}

// inForce returns the hash by which the token of a user is taken, if it is.
func (u userRecord) inForce() map[Hash]credential[Account] {
	if u.Disabled || u.Token == nil {
		return nil
	}
	account := &Account{UserID: u.ID, UserName: u.Name, Credential: u.Token.ID}
	return map[Hash]credential[Account]{Hash(u.TokenHash): {account, time.Time{}}}
}
