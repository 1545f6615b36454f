package identity

import (
	"context"
	"errors"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/internal/requestid"
	"github.com/caddy-modelgate/modelgate/storage"
)

// errWrongLogin is the error of a log-in with an unknown name, a wrong password, or the name
// of a user without a password.
var errWrongLogin = fault.New(fault.NotLoggedIn, "the user name or the password is wrong")

// Login logs a user in by name and password. If the user has a factor, the session is half-open
// and Entry.Factors has the names of the factors, of which one is due.
//
// The attempt is counted before any look-up. A hash is computed for every name, so that neither the
// answer nor its time reveals whether the user exists. Only a caller with the
// right password learns that a user is disabled.
func (d *Directory) Login(ctx context.Context, name, password string, from Device, terms Terms) (Entry, error) {
	place, err := d.hasher.EnterAnonymous()
	if err != nil {
		return Entry{}, err
	}
	defer place.Leave()
	byName, byAddress := terms.LoginLimits.byName(name), terms.LoginLimits.fromAddress(from)
	counted, err := d.countAttempts(ctx, byAddress, byName)
	if err != nil {
		return Entry{}, err
	}
	user, want, err := d.named(ctx, name)
	if err != nil {
		return Entry{}, err
	}
	right, err := place.Matches(ctx, password, want)
	switch {
	case err != nil:
		return Entry{}, err
	case !right || user.Password == "":
		d.refused(ctx, audit.Event{Actor: attempts.Unknown, Action: "login.refuse", User: user.ID, Detail: "password", Address: from.address()})
		return Entry{}, errWrongLogin
	case user.Disabled:
		return Entry{}, errDisabled
	}
	raised := user.Password
	if want.Outdated() {
		if raised, err = place.Hash(ctx, password); err != nil {
			return Entry{}, err
		}
	}
	var entry Entry
	err = d.Audit.Change(ctx, func(t storage.Txn) (_ *audit.Event, err error) {
		entry, err = d.enter(t, user, raised, from, terms, byName)
		event := &audit.Event{Actor: user.ID, Action: "login", User: user.ID, Detail: "password", Address: from.address()}
		if entry.Factors != nil {
			event.Action = "login.half"
		}
		if err != nil {
			return nil, err
		}
		err = attempts.Count(t, d.store.Now(), returnedLogins.Of(user.ID))
		if attempts.Refused(err) {
			return event, nil
		}
		return event, errors.Join(err, byAddress.Return(t, counted))
	})
	return entry, err
}

// enter opens the session of a user whose password was right, if it is still the user's password.
// If raised is a more expensive hash of it, enter stores that.
func (d *Directory) enter(t storage.Txn, known *userRecord, raised string, from Device, terms Terms, byName attempts.Attempt) (Entry, error) {
	user, err := mustGet(t, &userTable, known.ID)
	if err != nil {
		return Entry{}, err
	}
	if user.Password != known.Password && user.Epoch != known.Epoch {
		// The password was changed while this one was checked. If another log-in only hashed it
		// again, the epoch is the same.
		return Entry{}, errWrongLogin
	}
	due, err := factor.Due(t, user.ID)
	if err != nil {
		return Entry{}, err
	}
	if raised != known.Password && user.Password == known.Password {
		after := *user
		after.Password = raised
		if err := userTable.Put(t, user, &after); err != nil {
			return Entry{}, err
		}
	}
	if due == nil {
		if err := byName.Reset(t); err != nil {
			return Entry{}, err
		}
	}
	entry, err := d.openSession(t, user.ID, from, terms, due != nil)
	entry.Factors = due
	return entry, err
}

// LoginCode completes a half-open log-in by a TOTP code or a backup code. The session gets a new
// secret and is complete.
func (d *Directory) LoginCode(ctx context.Context, half *Account, code string) (Entry, error) {
	if !half.HalfOpen {
		return Entry{}, fault.New(fault.Conflict, "you are logged in already")
	}
	var entry Entry
	err := d.factors.ProveCode(ctx, half.holder(), code, func(t storage.Txn) (_ *audit.Event, err error) {
		byName := LoginLimits{}.byName(half.UserName)
		if err := byName.Reset(t); err != nil {
			return nil, err
		}
		var address string
		entry, err = d.renewEntry(t, half, func(s *sessionRecord) error {
			if !s.Half {
				return errLoggedOut // another request has completed the log-in
			}
			s.Half, address = false, s.Address
			return nil
		})
		return &audit.Event{Actor: half.UserID, Action: "login", User: half.UserID, Detail: "password, code", Address: address}, err
	})
	return entry, err
}

// named returns the user of this name and the hash of the user's password. If there is no such
// user or no password, it returns a hash that matches no password.
func (d *Directory) named(ctx context.Context, name string) (*userRecord, password.Hash, error) {
	user, err := view(ctx, d, func(r storage.Reader) (*userRecord, error) {
		folded, refusal := foldName(name)
		if refusal != nil {
			return nil, nil
		}
		return userTable.Find(r, &userNames, folded)
	})
	if err != nil {
		return nil, password.None, err
	}
	if user == nil {
		user = new(userRecord)
	}
	want, err := user.hash()
	return user, want, err
}

// hash returns the hash of the user's password, or one that matches no password.
func (u *userRecord) hash() (password.Hash, error) {
	if u.Password == "" {
		return password.None, nil
	}
	want, err := password.Parse(u.Password)
	if err != nil {
		return password.None, fault.New(fault.Internal, "the stored password of %s cannot be read", u.ID)
	}
	return want, nil
}

// refused records a wrong password in the events of its user, if there is one, and in the
// log. It does not wait for the write, because that time would reveal that the user exists. An
// unknown name is not recorded: it may be a password that was typed into the wrong field.
func (d *Directory) refused(ctx context.Context, event audit.Event) {
	if event.User == "" {
		event.RequestID = requestid.Of(ctx)
		d.Audit.OnAudit(event)
		return
	}
	now := d.store.Now()
	_ = d.store.Post(context.WithoutCancel(ctx), func(t storage.Txn) error { return audit.Record(ctx, t, now, &event) }, func(err error) {
		if err == nil {
			d.Audit.OnAudit(event)
		}
	})
}

// ProvePassword checks the password of an authenticated user again. It returns VERIFICATION_FAILED
// for a wrong password, TOO_MANY_ATTEMPTS after too many attempts, and CONFLICT if the user has no
// password.
func (d *Directory) ProvePassword(ctx context.Context, a *Account, password string) error {
	if err := refuseHalfOpen(a); err != nil {
		return err
	}
	place, err := d.hasher.Enter()
	if err != nil {
		return err
	}
	defer place.Leave()
	_, err = d.proved(ctx, place, a, password)
	return err
}

// proved is ProvePassword with the caller's place in the queue. It returns the user record whose
// password was compared.
func (d *Directory) proved(ctx context.Context, place password.Place, a *Account, password string) (*userRecord, error) {
	user, err := view(ctx, d, func(r storage.Reader) (*userRecord, error) { return mustGet(r, &userTable, a.UserID) })
	switch {
	case err != nil:
		return user, err
	case user.Password == "":
		return user, fault.New(fault.Conflict, "this account has no password yet; ask an operator for a one-time code to set one")
	case password == "":
		return user, fault.At(fault.MissingParameter, "password", "this operation needs your password again")
	}
	if _, err := d.countAttempts(ctx, passwordAttempts.Of(a.UserID)); err != nil {
		return user, err
	}
	want, err := user.hash()
	if err != nil {
		return user, err
	}
	right, err := place.Matches(ctx, password, want)
	if err != nil {
		return user, err
	}
	if !right {
		d.refused(ctx, audit.Event{Actor: a.UserID, Action: "password.refuse", User: a.UserID, Address: a.Address})
		return user, fault.At(fault.VerificationFailed, "password", "the password is wrong")
	}
	return user, nil
}
