package adminapi

import (
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// User is a user with their second factors.
type User struct {
	identity.User
	Factors Factors `json:"factors"`
}

// Factors are the second factors of a user.
type Factors struct {
	TOTP        bool `json:"totp"`
	BackupCodes int  `json:"backup_codes"` // how many are left
	Passkeys    int  `json:"passkeys"`
}

// shownUser adds the second factors to a user.
func (c *call) shownUser(user identity.User, err error) (User, error) {
	if err != nil {
		return User{}, err
	}
	factors, err := c.Directory.Factors(c.ctx(), user.ID)
	return User{user, Factors{factors.TOTP, factors.BackupCodes, len(factors.Passkeys)}}, err
}

func listUsers(c *call) (any, error) {
	p, text := c.q.PageAfter(), c.q.Text("q")
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	users, next, err := c.Directory.Search(c.ctx(), text, p.After, p.Limit)
	shown := make([]User, len(users))
	for i, user := range users {
		if c.actor != Operator { // the page of the user has them, for the roles that may see it
			user.Email, user.BalanceNotice, user.Token = "", 0, nil
		}
		if shown[i], err = c.shownUser(user, err); err != nil {
			return nil, err
		}
	}
	return Page[User]{shown, next}, err
}

// userOf returns the user with this id or name. If it is empty, userOf returns the zero
// User, which means all users.
func (c *call) userOf(idOrName string) (identity.User, error) {
	if idOrName == "" {
		return identity.User{}, nil
	}
	return c.Directory.User(c.ctx(), idOrName)
}

// namesOf returns the names of the users of some records, by id. It reads no other users.
func namesOf[T any](c *call, records []T, user func(T) string) (map[string]string, error) {
	return c.Directory.Names(c.ctx(), func(yield func(string) bool) {
		for _, record := range records {
			if !yield(user(record)) {
				return
			}
		}
	})
}

// userNames returns the names of all users by their ids.
func (c *call) userNames() (map[string]string, error) {
	users, err := c.Directory.Users(c.ctx())
	names := make(map[string]string, len(users))
	for _, user := range users {
		names[user.ID] = user.Name
	}
	return names, err
}

// newUser is a user to create. People log in with a password; programs need none.
type newUser struct {
	Name     string  `json:"name"`
	Password *string `json:"password"`
}

func createUser(c *call, in newUser) (any, error) {
	if in.Password != nil {
		user, err := c.Directory.CreateUserWithPassword(c.ctx(), c.actor, in.Name, *in.Password)
		return User{User: user}, err
	}
	user, err := c.Directory.CreateUser(c.ctx(), c.actor, in.Name)
	return User{User: user}, err
}

func setUserDisabled(disabled bool) handler {
	return func(c *call) (any, error) {
		return c.shownUser(c.Directory.SetUserDisabled(c.ctx(), c.actor, c.path("user"), disabled))
	}
}

type newRole struct {
	Role string `json:"role"`
}

func setRole(c *call, in newRole) (any, error) {
	role, err := identity.ParseRole(in.Role)
	if err != nil {
		return nil, err
	}
	return c.shownUser(c.Directory.SetRole(c.ctx(), c.actor, c.path("user"), role))
}

// Event is an event of the audit with the name of its actor, if that is a user.
type Event struct {
	audit.Event
	ActorName string `json:"actor_name,omitempty"`
}

// listEvents lists what was done to the account of a user, newest first.
func listEvents(c *call) (any, error) {
	user, err := c.Directory.User(c.ctx(), c.path("user"))
	if err != nil {
		return nil, err
	}
	p := c.q.PageAfter()
	events, next, err := c.Directory.Audit.Events(c.ctx(), user.ID, p.After, p.Limit)
	shown, names := make([]Event, len(events)), make(map[string]string)
	for i, event := range events {
		if _, known := names[event.Actor]; !known {
			names[event.Actor] = ""
			if strings.HasPrefix(event.Actor, "usr_") { // a user may have the name of a service
				actor, _ := c.Directory.User(c.ctx(), event.Actor)
				names[event.Actor] = actor.Name
			}
		}
		shown[i] = Event{event, names[event.Actor]}
	}
	return Page[Event]{shown, next}, err
}

func changeUserLimits(c *call, change identity.LimitsChange) (any, error) {
	return c.shownUser(c.Directory.ChangeUserLimits(c.ctx(), c.actor, c.path("user"), change))
}

func removeUserLimits(c *call) (any, error) {
	return c.shownUser(c.Directory.ChangeUserLimits(c.ctx(), c.actor, c.path("user"), identity.Limits{}.Change()))
}

// OneTimeCode is a one-time code. Only this answer has it.
type OneTimeCode struct {
	Code string `json:"code"`
	Page string `json:"page,omitempty"` // of the console, on which the user enters it; empty: there are no pages
}

func issueResetCode(c *call) (any, error) {
	code, err := c.Directory.IssueResetCode(c.ctx(), c.actor, c.path("user"))
	return OneTimeCode{code.Reveal(), c.app.ConsolePage("/reset")}, err
}

// AccessToken is an access token. Only this answer has it.
type AccessToken struct {
	Secret string `json:"access_token,omitempty"`
}

func mintToken(c *call) (any, error) {
	secret, err := c.Directory.MintToken(c.ctx(), c.actor, c.path("user"))
	return AccessToken{secret.Reveal()}, err
}

// Key is a key as operators see it. Its scope is the one of the operators; Owner is the
// one of the owner. Only lists have the name of the user. Only the answer that creates or
// rotates a key has the secret.
type Key struct {
	identity.Key
	Owner    identity.Scope `json:"owner,omitzero"`
	UserName string         `json:"user_name,omitempty"`
	Secret   string         `json:"api_key,omitempty"`
}

func shownKey(key identity.Key, err error) (Key, error) {
	shown := Key{Key: key, Owner: key.Scope}
	shown.Scope, shown.Operator = key.Operator, identity.Scope{}
	return shown, err
}

// listKeys lists the keys of a user. Without a user, it lists those of all users: to the operator at once,
// to administrators in pages.
func listKeys(c *call) (any, error) {
	user, p := c.q.Text("user"), c.q.PageAfter()
	if user != "" && p.After != "" {
		c.q.Refuse("after", "is for the list of the keys of all users; with `user` the answer has all keys")
	}
	if c.q.Fault != nil {
		return nil, c.q.Fault
	}
	var keys []identity.Key
	var next string
	var err error
	if user == "" && c.actor != Operator {
		keys, next, err = c.Directory.KeyPage(c.ctx(), p.After, p.Limit)
	} else {
		keys, err = c.Directory.Keys(c.ctx(), user)
	}
	if err != nil {
		return nil, err
	}
	names, err := namesOf(c, keys, func(key identity.Key) string { return key.UserID })
	shown := make([]Key, len(keys))
	for i, key := range keys {
		shown[i], _ = shownKey(key, nil)
		shown[i].UserName = names[key.UserID]
	}
	return Page[Key]{shown, next}, err
}

type newKey struct {
	User     string          `json:"user"`
	Name     string          `json:"name"`
	Models   []string        `json:"models"`
	IPRanges []string        `json:"ip_ranges"`
	Expires  int64           `json:"expires"`
	Limits   identity.Limits `json:"limits"`
}

func createKey(c *call, in newKey) (any, error) {
	if in.User == "" {
		return nil, fault.At(fault.MissingParameter, "user", "`user` is required: the id or the name of a user")
	}
	spec := identity.KeySpec{Name: in.Name, Models: in.Models, IPRanges: in.IPRanges, Expires: in.Expires, Limits: in.Limits}
	key, secret, err := c.Directory.CreateKey(c.ctx(), c.actor, in.User, spec)
	shown, err := shownKey(key, err)
	shown.Secret = secret.Reveal()
	return shown, err
}

type rotation struct {
	Grace int64 `json:"grace"` // seconds
}

func rotateKey(c *call, in rotation) (any, error) {
	if maxGrace := int64(identity.MaxGrace / time.Second); in.Grace < 0 || in.Grace > maxGrace {
		return nil, fault.At(fault.InvalidParameter, "grace", "grace: %d is not supported; allowed: 0 to %d seconds", in.Grace, maxGrace)
	}
	key, secret, err := c.Directory.RotateKey(c.ctx(), c.actor, c.path("key"), time.Duration(in.Grace)*time.Second)
	shown, err := shownKey(key, err)
	shown.Secret = secret.Reveal()
	return shown, err
}

func changeKeyLimits(c *call, change identity.LimitsChange) (any, error) {
	return shownKey(c.Directory.ChangeKeyLimits(c.ctx(), c.actor, c.path("key"), change))
}

func removeKeyLimits(c *call) (any, error) {
	return shownKey(c.Directory.ChangeKeyLimits(c.ctx(), c.actor, c.path("key"), identity.Limits{}.Change()))
}

func revokeKey(c *call) (any, error) {
	return shownKey(c.Directory.RevokeKey(c.ctx(), c.actor, c.path("key")))
}
