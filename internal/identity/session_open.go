package identity

import (
	"context"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// AuthenticateSession returns whose session this is, by the secret in the
// cookie. It answers false alike for junk, unknown, idle, expired and ended
// sessions and for those of disabled users. It reads the store at every request,
// so what ends a session ends it before the next one; an error means that the
// store does not answer, and nothing about the session.
func (d *Directory) AuthenticateSession(ctx context.Context, secret string) (*Account, bool, error) {
	hash, ok := hashSession(secret)
	if !ok {
		return nil, false, nil
	}
	now := d.store.Now()
	var session *sessionRecord
	var user *userRecord
	err := d.store.View(ctx, func(r storage.Reader) (err error) {
		if session, err = sessionTable.Get(r, string(hash[:])); err != nil || session == nil {
			return err
		}
		user, err = userTable.Get(r, session.UserID)
		return err
	})
	if err != nil {
		return nil, false, fault.OfStore(err)
	}
	if session == nil || user == nil || !session.inForce(user, now) {
		return nil, false, nil
	}
	d.see(ctx, session, now)
	return session.account(user), true, nil
}

// see writes down that a session is in use, now and then. Nobody waits for it:
// what a crash forgets ends a session a little earlier.
func (d *Directory) see(ctx context.Context, session *sessionRecord, now time.Time) {
	every := min(session.Idle/10, int64(5*time.Minute/time.Second))
	if session.Half || now.Unix() < session.Seen+max(every, 1) {
		return
	}
	_ = d.store.Post(ctx, func(t storage.Txn) error {
		_, err := sessionTable.Change(t, table.Key{string(session.Hash)}, func(have *sessionRecord) bool {
			if have.Seen >= now.Unix() {
				return false // another request was quicker
			}
			have.Seen = now.Unix()
			return true
		})
		return err // none: it was ended or renewed meanwhile
	}, nil)
}

// Entry is a log-in.
type Entry struct {
	// Secret is what the cookie has to hold from now on.
	Secret Secret

	// Account is who has logged in, half or whole.
	Account *Account

	// Expires is when the session is over if it is not used, in Unix seconds.
	Expires int64

	// Factors are the factors of which one is still due, "2fa" and "passkey";
	// empty when the log-in is whole.
	Factors []string
}

func (s *sessionRecord) entry(secret Secret, user *userRecord) Entry {
	return Entry{Secret: secret, Account: s.account(user), Expires: s.until()}
}

// openSession opens a session of a user, in somebody's transaction. Its id and
// its secret are new: nothing that the client brought goes into them. A disabled
// user gets none.
func (d *Directory) openSession(t storage.Txn, userID string, from Device, terms Terms, half bool) (Entry, error) {
	user, err := mustGet(t, &userTable, userID)
	if err != nil {
		return Entry{}, err
	}
	if user.Disabled {
		return Entry{}, disabled()
	}
	now := d.store.Now()
	if err := makeRoom(t, user, now, half); err != nil {
		return Entry{}, err
	}
	secret := drawSession()
	hash, _ := hashSession(secret.Reveal())
	session := &sessionRecord{
		Hash: hash[:], ID: newID("ses"), UserID: user.ID, Epoch: user.Epoch,
		Created: now.Unix(), Seen: now.Unix(),
		Idle:     seconds(terms.Idle, defaultIdle),
		Lifetime: seconds(terms.Lifetime, defaultLifetime),
		Half:     half, Address: from.address(), Agent: from.agent(),
	}
	return session.entry(secret, user), sessionTable.Put(t, nil, session)
}

// makeRoom removes the sessions of a user that have ended, and those that were
// not used for the longest time where one more would be too many.
func makeRoom(t storage.Txn, user *userRecord, now time.Time, half bool) error {
	sessions, err := sessionsOf(t, user.ID)
	if err != nil {
		return err
	}
	room := maxSessions
	if half {
		room = maxHalfSessions
	}
	for _, s := range sessions { // last used first
		keep := s.inForce(user, now)
		if keep && s.Half == half {
			room--
			keep = room > 0
		}
		if keep {
			continue
		}
		if err := removeSession(t, s); err != nil {
			return err
		}
	}
	return nil
}

// renewSession gives the session of an account a new secret, after a proof or a
// change that a stolen one must not outlive, and returns it. The session's id
// stays, and what is bound to it. For an access token, which is no cookie, it
// does nothing but see that it is still in force, and returns none.
func (d *Directory) renewSession(t storage.Txn, a *Account) (Secret, error) {
	if err := whole(a); err != nil {
		return "", err
	}
	entry, err := d.renewEntry(t, a, func(*sessionRecord) error { return nil })
	return entry.Secret, err
}

// renewEntry is renewSession with a change of the session besides.
func (d *Directory) renewEntry(t storage.Txn, a *Account, change func(*sessionRecord) error) (Entry, error) {
	session, user, err := d.own(t, a)
	if err != nil || !a.Session {
		return Entry{}, err
	}
	if err := change(session); err != nil {
		return Entry{}, err
	}
	secret, err := moveSession(t, session, d.store.Now())
	return session.entry(secret, user), err
}

// own returns the user of an account and the account's session. If the credential has
// ended or has another secret since, it fails with NOT_LOGGED_IN. For an access token the
// session is nil.
func (d *Directory) own(r storage.Reader, a *Account) (*sessionRecord, *userRecord, error) {
	user, err := userTable.Get(r, a.UserID)
	switch {
	case err != nil:
		return nil, nil, err
	case user == nil || user.Disabled:
		return nil, nil, loggedOut()
	case !a.Session:
		if user.Token == nil || user.Token.ID != a.Credential {
			return nil, nil, loggedOut()
		}
		return nil, user, nil
	}
	session, err := findSession(r, a.UserID, a.Credential)
	if err == nil && (session == nil || Hash(session.Hash) != a.secret || !session.inForce(user, d.store.Now())) {
		err = loggedOut()
	}
	return session, user, err
}

// moveSession writes a session under a new secret, which it has from then on, and
// takes it from the old one.
func moveSession(t storage.Txn, session *sessionRecord, now time.Time) (Secret, error) {
	if err := sessionTable.Put(t, session, nil); err != nil {
		return "", err
	}
	secret := drawSession()
	hash, _ := hashSession(secret.Reveal())
	session.Hash, session.Seen = hash[:], now.Unix()
	return secret, sessionTable.Put(t, nil, session)
}

// maxAgent is how many bytes are kept of what a browser calls itself.
const maxAgent = 256

func (d Device) agent() string {
	agent := d.Agent
	if len(agent) > maxAgent {
		agent = agent[:maxAgent]
	}
	return strings.ToValidUTF8(agent, "") // a character cut in two goes whole
}

func (d Device) address() string {
	if !d.Address.IsValid() {
		return ""
	}
	return d.Address.Unmap().String()
}

// seconds is a duration in whole seconds, or the default where there is none.
func seconds(d, byDefault time.Duration) int64 {
	if d <= 0 {
		d = byDefault
	}
	return max(int64(d/time.Second), 1)
}

// disabled is the answer to a user who has proved who he is and is shut out.
func disabled() *fault.Fault {
	return fault.New(fault.UserDisabled, "this account is disabled; ask an operator")
}
