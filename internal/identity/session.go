package identity

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Terms are how long sessions last. They are pinned in a session when it is
// opened, in whole seconds.
type Terms struct {
	// Idle is how long a session lasts without a request. Default: 24 hours.
	//
	// When it was last used is written down at most once in a tenth of Idle, or
	// in 5 minutes if that is less, so a session may end that much earlier. It
	// never ends later.
	Idle time.Duration

	// Lifetime is how long a session lasts at most. Default: 30 days.
	Lifetime time.Duration

	// Pace is how often one may log in.
	Pace Pace
}

const (
	defaultIdle     = 24 * time.Hour
	defaultLifetime = 30 * 24 * time.Hour

	// halfLife is how long a half-open session waits for the second factor.
	halfLife = 10 * time.Minute
)

// The most sessions that one user has. One more ends the one that was not used
// for the longest time. Half-open ones are counted apart: who knows a password
// and no more must not be able to end the sessions of whoever knows it all.
const (
	maxSessions     = 100
	maxHalfSessions = 10
)

// Session is a session as it is shown: everything but its secret.
type Session struct {
	ID      string `json:"id"`
	Created int64  `json:"created"`           // Unix seconds
	Seen    int64  `json:"seen"`              // Unix seconds, some minutes late; see [Terms.Idle]
	Expires int64  `json:"expires"`           // Unix seconds, if it is not used before
	Address string `json:"address,omitempty"` // where it was opened from
	Agent   string `json:"agent,omitempty"`   // what the browser called itself then
	Current bool   `json:"current"`           // whether it is the one that asks
}

// sessionRecord is a session as it is stored. Its secret is nowhere.
type sessionRecord struct {
	Hash     []byte `json:"hash"` // SHA-256 of the secret
	ID       string `json:"id"`
	UserID   string `json:"user_id"`
	Epoch    int64  `json:"epoch,omitempty"` // of the user, when it was opened or renewed
	Created  int64  `json:"created"`         // Unix seconds
	Seen     int64  `json:"seen"`            // Unix seconds
	Idle     int64  `json:"idle"`            // seconds
	Lifetime int64  `json:"lifetime"`        // seconds
	Half     bool   `json:"half,omitempty"`  // the second factor is due
	Address  string `json:"address,omitempty"`
	Agent    string `json:"agent,omitempty"`
}

// sessionDigits is the length of a session's secret: 43 base62 digits, 256 bit.
const sessionDigits = 43

func drawSession() Secret { return Secret(appendRandom62(nil, sessionDigits)) }

// hashSession returns the hash of a session's secret. What cannot be one is
// refused without a look-up.
func hashSession(secret string) (Hash, bool) {
	if len(secret) != sessionDigits {
		return Hash{}, false
	}
	for i := range len(secret) {
		if !isBase62(secret[i]) {
			return Hash{}, false
		}
	}
	return sha256.Sum256([]byte(secret)), true
}

// until is the second in which the session is over, if it is not used before.
func (s *sessionRecord) until() int64 {
	if s.Half {
		return min(s.Created+int64(halfLife/time.Second), s.last())
	}
	return min(s.Seen+s.Idle, s.last())
}

// last is the second in which the session is over however it is used.
func (s *sessionRecord) last() int64 { return s.Created + s.Lifetime }

// inForce tells whether a session lets in its user, as he is now.
func (s *sessionRecord) inForce(user *userRecord, now time.Time) bool {
	return user.ID == s.UserID && !user.Disabled && user.Epoch == s.Epoch && now.Unix() < s.until()
}

// removeSession ends a session, with what was proved in it.
func removeSession(t storage.Txn, s *sessionRecord) error {
	if err := sessionTable.Put(t, s, nil); err != nil {
		return err
	}
	return dropStamp(t, s.ID)
}

// account is who comes by the secret that a session has.
func (s *sessionRecord) account(user *userRecord) *Account {
	return &Account{
		UserID: user.ID, UserName: user.Name, Credential: s.ID,
		Session: true, Opened: s.Created, HalfOpen: s.Half, secret: Hash(s.Hash),
	}
}

// findSession returns a session of a user by its id, in force or not; nil if there is none.
func findSession(r storage.Reader, userID, id string) (*sessionRecord, error) {
	return sessionTable.Find(r, &userSessions, userID, id)
}

// sessionsOf returns all sessions of a user that are there, in force or not,
// last used first.
func sessionsOf(r storage.Reader, userID string) ([]*sessionRecord, error) {
	var sessions []*sessionRecord
	for s, err := range sessionTable.Scan(r, userSessions.Under(userID)) {
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, s)
	}
	slices.SortStableFunc(sessions, func(a, b *sessionRecord) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID))
	})
	return sessions, nil
}

// loggedOut is the answer to whoever held a session or a token that has ended
// since his request began.
func loggedOut() *fault.Fault {
	return fault.New(fault.NotLoggedIn, "this session or access token has ended; log in again")
}
