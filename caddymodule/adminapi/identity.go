package adminapi

import (
	"time"

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
	users, err := c.Directory.Users(c.ctx())
	shown := make([]User, len(users))
	for i, user := range users {
		if shown[i], err = c.shownUser(user, nil); err != nil {
			return nil, err
		}
	}
	return listed(shown, err)
}

// userOf returns the user with this id or name. If it is empty, userOf returns the zero
// User, which means all users.
func (c *call) userOf(idOrName string) (identity.User, error) {
	if idOrName == "" {
		return identity.User{}, nil
	}
	return c.Directory.User(c.ctx(), idOrName)
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
		user, err := c.Directory.CreateUserWithPassword(c.ctx(), Operator, in.Name, *in.Password)
		return User{User: user}, err
	}
	user, err := c.Directory.CreateUser(c.ctx(), Operator, in.Name)
	return User{User: user}, err
}

func setUserDisabled(disabled bool) handler {
	return func(c *call) (any, error) {
		return c.shownUser(c.Directory.SetUserDisabled(c.ctx(), Operator, c.path("user"), disabled))
	}
}

func changeUserLimits(c *call, change identity.LimitsChange) (any, error) {
	return c.shownUser(c.Directory.ChangeUserLimits(c.ctx(), Operator, c.path("user"), change))
}

func removeUserLimits(c *call) (any, error) {
	return c.shownUser(c.Directory.ChangeUserLimits(c.ctx(), Operator, c.path("user"), identity.Limits{}.Change()))
}

// OneTimeCode is a one-time code. Only this answer has it.
type OneTimeCode struct {
	Code string `json:"code"`
}

func issueResetCode(c *call) (any, error) {
	code, err := c.Directory.IssueResetCode(c.ctx(), Operator, c.path("user"))
	return OneTimeCode{code.Reveal()}, err
}

// AccessToken is an access token. Only this answer has it.
type AccessToken struct {
	Secret string `json:"access_token,omitempty"`
}

func mintToken(c *call) (any, error) {
	secret, err := c.Directory.MintToken(c.ctx(), Operator, c.path("user"))
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

func listKeys(c *call) (any, error) {
	keys, err := c.Directory.Keys(c.ctx(), c.q.Text("user"))
	if err != nil {
		return nil, err
	}
	names, err := c.userNames()
	shown := make([]Key, len(keys))
	for i, key := range keys {
		shown[i], _ = shownKey(key, nil)
		shown[i].UserName = names[key.UserID]
	}
	return listed(shown, err)
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
	key, secret, err := c.Directory.CreateKey(c.ctx(), Operator, in.User, spec)
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
	key, secret, err := c.Directory.RotateKey(c.ctx(), Operator, c.path("key"), time.Duration(in.Grace)*time.Second)
	shown, err := shownKey(key, err)
	shown.Secret = secret.Reveal()
	return shown, err
}

func changeKeyLimits(c *call, change identity.LimitsChange) (any, error) {
	return shownKey(c.Directory.ChangeKeyLimits(c.ctx(), Operator, c.path("key"), change))
}

func removeKeyLimits(c *call) (any, error) {
	return shownKey(c.Directory.ChangeKeyLimits(c.ctx(), Operator, c.path("key"), identity.Limits{}.Change()))
}

func revokeKey(c *call) (any, error) {
	return shownKey(c.Directory.RevokeKey(c.ctx(), Operator, c.path("key")))
}
