package identity

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Terms has the durations of sessions, in whole seconds, and the limits of log-ins. A session keeps
// the terms with which it was opened.
type Terms struct {
	// Idle is how long a session lasts without a request. Default: 24 hours.
	//
	// The last use is written at most once in a tenth of Idle, or in 5 minutes if that is less.
	// Thus a session may end that much earlier, but never later.
	Idle time.Duration

	// Lifetime is the maximum duration of a session. Default: 30 days.
	Lifetime time.Duration

	// LoginLimits bound the attempts to log in.
	LoginLimits LoginLimits
}

const (
	defaultIdle     = 24 * time.Hour
	defaultLifetime = 30 * 24 * time.Hour

	// halfOpenLife is how long a half-open session waits for the second factor.
	halfOpenLife = 10 * time.Minute
)

// The maximum number of sessions of one user. A further one ends the least recently used one.
// Half-open sessions are counted separately, so that a caller who knows only the password cannot
// end complete sessions.
const (
	maxSessions     = 100
	maxHalfSessions = 10
)

// Session is a session without its secret.
type Session struct {
	ID      string `json:"id"`
	Created int64  `json:"created"`           // Unix seconds
	Seen    int64  `json:"seen"`              // Unix seconds, some minutes late; see [Terms.Idle]
	Expires int64  `json:"expires"`           // Unix seconds, if it is not used before
	Address string `json:"address,omitempty"` // of the client that opened it
	Agent   string `json:"agent,omitempty"`   // the User-Agent header then
	Current bool   `json:"current"`           // whether it is the session of the request
}

// sessionRecord is a stored session. Its secret is not stored.
type sessionRecord struct {
	Hash     credential.Hash `json:"hash"` // SHA-256 of the secret
	ID       string          `json:"id"`
	UserID   string          `json:"user_id"`
	Epoch    int64           `json:"epoch,omitempty"` // of the user, when it was opened or renewed
	Created  int64           `json:"created"`         // Unix seconds
	Seen     int64           `json:"seen"`            // Unix seconds
	Idle     int64           `json:"idle"`            // seconds
	Lifetime int64           `json:"lifetime"`        // seconds
	Half     bool            `json:"half,omitempty"`  // the second factor is due
	Address  string          `json:"address,omitempty"`
	Agent    string          `json:"agent,omitempty"`
}

// until returns the second in which the session ends if it is not used before.
func (s *sessionRecord) until() int64 {
	if s.Half {
		return min(s.Created+int64(halfOpenLife/time.Second), s.last())
	}
	return min(s.Seen+s.Idle, s.last())
}

// last returns the second in which the session ends at the latest.
func (s *sessionRecord) last() int64 { return s.Created + s.Lifetime }

// inForce reports whether a session admits its user, given the user's record.
func (s *sessionRecord) inForce(user *userRecord, now time.Time) bool {
	return user.ID == s.UserID && !user.Disabled && user.Epoch == s.Epoch && now.Unix() < s.until()
}

// removeSession ends a session, with its step-up.
func removeSession(t storage.Txn, s *sessionRecord) error {
	if err := sessionTable.Put(t, s, nil); err != nil {
		return err
	}
	return factor.EndStepUp(t, s.ID)
}

// account returns the account of a request with the secret of the session.
func (s *sessionRecord) account(user *userRecord) *Account {
	return &Account{
		UserID: user.ID, UserName: user.Name, Role: user.Role, Credential: s.ID,
		Session: true, Opened: s.Created, HalfOpen: s.Half, secret: s.Hash,
	}
}

// findSession returns a session of a user by its id, in force or not; nil if there is none.
func findSession(r storage.Reader, userID, id string) (*sessionRecord, error) {
	return sessionTable.Find(r, &userSessions, userID, id)
}

// sessionsOf returns all sessions of a user that are stored, in force or not, last used first.
func sessionsOf(r storage.Reader, userID string) ([]*sessionRecord, error) {
	sessions, err := collect(sessionTable.Scan(r, userSessions.Under(userID)))
	slices.SortStableFunc(sessions, func(a, b *sessionRecord) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID))
	})
	return sessions, err
}

// errLoggedOut is the answer if the session or token of a request has ended since the request began.
var errLoggedOut = fault.New(fault.NotLoggedIn, "this session or access token has ended; log in again")

// AuthenticateSession returns the account of a session, by the secret in the cookie. It returns
// the same false for text that is not a secret, for unknown, expired and ended sessions, and for
// sessions of disabled users. It reads the store at every request, so that an ended session is
// refused immediately. An error means that the store does not answer.
func (d *Directory) AuthenticateSession(ctx context.Context, secret string) (*Account, bool, error) {
	hash, ok := credential.HashPlain(secret)
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
		if session.Hash != hash {
			return errors.New("a session is stored under the hash of another secret")
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
	d.recordUse(ctx, session, now)
	return session.account(user), true, nil
}

// recordUse records at intervals that a session is in use. It does not wait for the write. If a
// crash loses the write, the session ends a little earlier.
func (d *Directory) recordUse(ctx context.Context, session *sessionRecord, now time.Time) {
	every := min(session.Idle/10, int64(5*time.Minute/time.Second))
	if session.Half || now.Unix() < session.Seen+max(every, 1) {
		return
	}
	_ = d.store.Post(ctx, func(t storage.Txn) error {
		_, err := sessionTable.Change(t, table.Key{string(session.Hash[:])}, func(have *sessionRecord) bool {
			if have.Seen >= now.Unix() {
				return false // another request has recorded it
			}
			have.Seen = now.Unix()
			return true
		})
		return err // no error: the session was ended or renewed meanwhile
	}, nil)
}

// Entry is the result of a log-in.
type Entry struct {
	// Secret is the new value of the cookie.
	Secret Secret

	// Account is the account that has logged in, half-open or complete.
	Account *Account

	// Expires is when the session ends if it is not used, in Unix seconds.
	Expires int64

	// Factors are the factors of which one is still due, "2fa" and "passkey";
	// empty when the log-in is complete.
	Factors []string
}

func (s *sessionRecord) entry(secret Secret, user *userRecord) Entry {
	return Entry{Secret: secret, Account: s.account(user), Expires: s.until()}
}

// openSession opens a session of a user in a transaction. Its id and secret are new and random.
// For a disabled user, it returns USER_DISABLED.
func (d *Directory) openSession(t storage.Txn, userID string, from Device, terms Terms, half bool) (Entry, error) {
	user, err := mustGet(t, &userTable, userID)
	if err != nil {
		return Entry{}, err
	}
	if user.Disabled {
		return Entry{}, errDisabled
	}
	now := d.store.Now()
	if err := makeRoom(t, user, now, half); err != nil {
		return Entry{}, err
	}
	secret := credential.DrawPlain()
	hash, _ := credential.HashPlain(secret.Reveal())
	session := &sessionRecord{
		Hash: hash, ID: credential.NewID("ses"), UserID: user.ID, Epoch: user.Epoch,
		Created: now.Unix(), Seen: now.Unix(),
		Idle:     seconds(terms.Idle, defaultIdle),
		Lifetime: seconds(terms.Lifetime, defaultLifetime),
		Half:     half, Address: from.address(), Agent: from.agent(),
	}
	return session.entry(secret, user), sessionTable.Put(t, nil, session)
}

// makeRoom removes the ended sessions of a user, and the least recently used ones if a new
// session would exceed the maximum.
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

// renewSession gives the session of an account a new secret and returns it. It follows a proof or a
// change that must not help a thief of the old secret. The session's id and everything that is
// bound to the id stay. For an access token it only checks that the token is in force, and returns no
// secret.
func (d *Directory) renewSession(t storage.Txn, a *Account) (Secret, error) {
	if err := refuseHalfOpen(a); err != nil {
		return "", err
	}
	entry, err := d.renewEntry(t, a, func(*sessionRecord) error { return nil })
	return entry.Secret, err
}

// renewEntry is renewSession with a change of the session.
func (d *Directory) renewEntry(t storage.Txn, a *Account, change func(*sessionRecord) error) (Entry, error) {
	session, user, err := d.current(t, a)
	if err != nil || !a.Session {
		return Entry{}, err
	}
	if err := change(session); err != nil {
		return Entry{}, err
	}
	secret, err := moveSession(t, session, d.store.Now())
	return session.entry(secret, user), err
}

// own returns the user of an account and the account's session. It returns
// SECOND_FACTOR_REQUIRED if the account is half-open, and otherwise the errors of current.
func (d *Directory) own(r storage.Reader, a *Account) (*sessionRecord, *userRecord, error) {
	if err := refuseHalfOpen(a); err != nil {
		return nil, nil, err
	}
	return d.current(r, a)
}

// current returns the user of an account and the account's session. If the credential has ended or
// got another secret, it returns NOT_LOGGED_IN. For an access token the session is nil.
func (d *Directory) current(r storage.Reader, a *Account) (*sessionRecord, *userRecord, error) {
	user, err := userTable.Get(r, a.UserID)
	switch {
	case err != nil:
		return nil, nil, err
	case user == nil || user.Disabled:
		return nil, nil, errLoggedOut
	case !a.Session:
		if user.Token == nil || user.Token.ID != a.Credential {
			return nil, nil, errLoggedOut
		}
		return nil, user, nil
	}
	session, err := findSession(r, a.UserID, a.Credential)
	if err == nil && (session == nil || session.Hash != a.secret || !session.inForce(user, d.store.Now())) {
		err = errLoggedOut
	}
	return session, user, err
}

// moveSession writes a session under a new secret and removes it from the old one.
func moveSession(t storage.Txn, session *sessionRecord, now time.Time) (Secret, error) {
	if err := sessionTable.Put(t, session, nil); err != nil {
		return "", err
	}
	secret := credential.DrawPlain()
	hash, _ := credential.HashPlain(secret.Reveal())
	session.Hash, session.Seen = hash, now.Unix()
	return secret, sessionTable.Put(t, nil, session)
}

// maxAgent is how many bytes of the User-Agent header are kept.
const maxAgent = 256

func (d Device) agent() string {
	agent := d.Agent
	if len(agent) > maxAgent {
		agent = agent[:maxAgent]
	}
	return strings.ToValidUTF8(agent, "") // a truncated character is removed
}

func (d Device) address() string {
	if !d.Address.IsValid() {
		return ""
	}
	return d.Address.Unmap().String()
}

// seconds returns a duration in whole seconds, or the default if it is not positive.
func seconds(d, byDefault time.Duration) int64 {
	return max(int64(cmp.Or(max(d, 0), byDefault)/time.Second), 1)
}

// errDisabled is the answer to a disabled user whose proofs were right.
var errDisabled = fault.New(fault.UserDisabled, "this account is disabled; ask an operator")
