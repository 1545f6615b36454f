package identity

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Profile is what a user says of himself. What is nil stays as it is.
type Profile struct {
	// DisplayName is how he wants to be called: up to 64 characters that can be
	// seen, and spaces between them. Empty: by his user name.
	DisplayName *string `json:"display_name,omitempty"`
}

const maxDisplayName = 64

// ChangeProfile changes what a user says of himself. What is so already is no
// change.
func (d *Directory) ChangeProfile(ctx context.Context, a *Account, p Profile) (User, error) {
	if err := whole(a); err != nil {
		return User{}, err
	}
	if p.DisplayName != nil {
		name := strings.TrimSpace(*p.DisplayName)
		n := utf8.RuneCountInString(name)
		if n > maxDisplayName || !visible(name) {
			return User{}, fault.At(fault.InvalidParameter, "display_name",
				"a display name has at most %d characters that can be seen, this has %d", maxDisplayName, n)
		}
		p.DisplayName = &name
	}
	var user User
	err := d.Audit.Change(ctx, func(t storage.Txn) (event *audit.Event, err error) {
		if _, _, err := d.own(t, a); err != nil {
			return nil, err
		}
		user, event, err = alterUser(t, a.UserID, func(user *userRecord) (*audit.Event, error) {
			before := user.DisplayName
			replace(&user.DisplayName, p.DisplayName)
			if user.DisplayName == before {
				return nil, nil
			}
			return &audit.Event{Actor: a.UserID, Action: "profile.change", User: a.UserID, Detail: user.DisplayName, Address: a.Address}, nil
		})
		return event, err
	})
	return user, fault.OfStore(err)
}
