package identity

import (
	"context"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Sessions returns the complete sessions of a user that are in force, last used first.
func (d *Directory) Sessions(ctx context.Context, a *Account) ([]Session, error) {
	if err := refuseHalfOpen(a); err != nil {
		return nil, err
	}
	return view(ctx, d, func(r storage.Reader) ([]Session, error) {
		user, err := mustGet(r, &userTable, a.UserID)
		if err != nil {
			return nil, err
		}
		shown := []Session{}
		sessions, err := sessionsOf(r, a.UserID)
		for _, s := range sessions {
			if s.Half || !s.inForce(user, d.store.Now()) {
				continue
			}
			shown = append(shown, Session{
				ID: s.ID, Created: s.Created, Seen: s.Seen, Expires: s.until(),
				Address: s.Address, Agent: s.Agent, Current: a.Session && s.ID == a.Credential,
			})
		}
		return shown, err
	})
}

// Logout ends the session or access token of the account. If it has ended already, nothing
// changes.
func (d *Directory) Logout(ctx context.Context, a *Account) error {
	if !a.Session {
		_, err := d.changeAccess(ctx, a.UserID, func(_ storage.Txn, user *userRecord) (*audit.Event, error) {
			if user.Token == nil || user.Token.ID != a.Credential {
				return nil, nil
			}
			user.Token, user.TokenHash = nil, credential.Hash{}
			return a.event("token.revoke", a.Credential), nil
		})
		return err
	}
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		session, err := findSession(t, a.UserID, a.Credential)
		if err != nil || session == nil {
			return nil, err
		}
		return a.event("logout", session.ID), removeSession(t, session)
	})
}

// EndSession ends a session of the account's user. If the session does not exist or belongs to
// another user, it returns NOT_FOUND.
func (d *Directory) EndSession(ctx context.Context, a *Account, id string) error {
	if err := refuseHalfOpen(a); err != nil {
		return err
	}
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		session, err := findSession(t, a.UserID, id)
		if err != nil {
			return nil, err
		}
		if session == nil {
			return nil, fault.At(fault.NotFound, "id", "there is no session %q", id)
		}
		return a.event("session.end", session.ID), removeSession(t, session)
	})
}

// EndSessions ends all sessions of the account's user, or all except the session of the request. That
// session gets a new secret, which EndSessions returns. If it ends none, it records no event, so that
// a thief of a token cannot hide earlier events behind many new ones.
func (d *Directory) EndSessions(ctx context.Context, a *Account, all bool) (Secret, error) {
	var renewed Secret
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		session, before, err := d.own(t, a)
		if err != nil {
			return nil, err
		}
		user := *before
		event := a.event("session.end_all", "")
		var kept *sessionRecord
		if !all && a.Session {
			kept, event.Action, event.Detail = session, "session.end_others", session.ID
		}
		sessions, err := sessionsOf(t, user.ID)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(sessions, func(s *sessionRecord) bool {
			return s.inForce(before, d.store.Now()) && (kept == nil || s.ID != kept.ID)
		}) {
			event = nil
		}
		if renewed, err = endSessions(t, &user, kept, d.store.Now()); err != nil {
			return nil, err
		}
		return event, userTable.Put(t, before, &user)
	})
	return renewed, err
}

// SignOut ends all sessions and step-ups of a user. The password, keys and access token stay.
func (d *Directory) SignOut(ctx context.Context, actor, idOrName string) error {
	_, err := d.changeAccess(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		_, err := endSessions(t, user, nil, d.store.Now())
		return &audit.Event{Actor: actor, Action: "user.sign_out", User: user.ID}, err
	})
	return err
}

// endSessions ends all sessions of a user except kept, if that is not nil, and returns the new
// secret of kept. If kept is nil, it also ends all step-ups, including that of the access token.
// It ends the sessions by raising the epoch in the user's record, which the caller writes;
// removing their records only frees space.
func endSessions(t storage.Txn, user *userRecord, kept *sessionRecord, now time.Time) (Secret, error) {
	user.Epoch++
	sessions, err := sessionsOf(t, user.ID)
	if err != nil {
		return "", err
	}
	for _, s := range sessions {
		if kept == nil || s.ID != kept.ID {
			if err := removeSession(t, s); err != nil {
				return "", err
			}
		}
	}
	if kept == nil {
		return "", factor.EndStepUps(t, user.ID)
	}
	kept.Epoch = user.Epoch
	return moveSession(t, kept, now)
}

// endAccess ends the access token of a user, and all sessions except kept, if that is not nil. It
// returns the new secret of kept.
func endAccess(t storage.Txn, user *userRecord, kept *sessionRecord, now time.Time) (Secret, error) {
	if user.Token != nil {
		if err := factor.EndStepUp(t, user.Token.ID); err != nil {
			return "", err
		}
		user.Token, user.TokenHash = nil, credential.Hash{}
	}
	// The step-up of the kept session was granted before the password changed.
	if err := factor.EndStepUps(t, user.ID); err != nil {
		return "", err
	}
	return endSessions(t, user, kept, now)
}
