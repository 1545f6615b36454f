package console

import (
	"cmp"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// credentials is a body with a name and a password.
type credentials struct {
	Name     string `json:"username"`
	Password string `json:"password"`
}

func (in credentials) check() *fault.Fault {
	return cmp.Or(required("username", in.Name != ""), required("password", in.Password != ""))
}

// person is a user in the answer to a registration or log-in.
type person struct {
	ID   string        `json:"id"`
	Name string        `json:"username"`
	Role identity.Role `json:"role,omitempty"`
}

// register makes an account, if registration is open. It does not log in.
func register(req *request, in credentials) (any, error) {
	if !req.console.app.OpenRegistration() {
		return nil, fault.New(fault.Forbidden, "accounts are made by the operator here; registration is closed")
	}
	made, err := req.runtime.Directory.Register(req.r.Context(), in.Name, in.Password, auth.Device(req.r), req.console.app.LoginLimits())
	return person{made.ID, made.Name, made.Role}, err
}

type setup struct {
	Code string `json:"code"`
	credentials
}

func (in setup) check() *fault.Fault {
	return cmp.Or(required("code", in.Code != ""), in.credentials.check())
}

// setUp makes the first administrator by the one-time code in the log, which is written until
// there is an administrator.
func setUp(req *request, in setup) (any, error) {
	made, err := req.runtime.Directory.Setup(req.r.Context(), in.Code, in.Name, in.Password)
	return person{made.ID, made.Name, made.Role}, err
}

// loggedIn is the answer to a log-in.
type loggedIn struct {
	SecondFactor bool     `json:"require_2fa"`
	Methods      []string `json:"methods,omitempty"` // the factors that can complete the log-in
	Person       *person  `json:"user,omitempty"`    // absent until the log-in is complete
	Expires      int64    `json:"expires_at"`        // Unix seconds
}

// answerLogIn answers a log-in that is complete or waits for the second factor. The cookie
// of a half-open session lasts as long as the session.
func (req *request) answerLogIn(entry identity.Entry, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	req.endReplaced(entry)
	if len(entry.Factors) == 0 {
		req.noteDevice(entry.Account.UserID, req.mailLogIn())
	}
	answer := loggedIn{SecondFactor: len(entry.Factors) > 0, Methods: entry.Factors, Expires: entry.Expires}
	if answer.SecondFactor {
		req.setSession(entry.Secret, time.Unix(entry.Expires, 0).Sub(req.runtime.Store.Now()))
	} else {
		req.renewSession(entry.Secret)
		answer.Person = &person{ID: entry.Account.UserID, Name: entry.Account.UserName}
	}
	return answer, nil
}

// renewed sets the session cookie to the new secret, and answers an empty object.
func (req *request) renewed(secret identity.Secret, err error) (any, error) {
	return req.renewedWith(struct{}{}, secret, err)
}

// renewedWith sets the session cookie to the new secret, and answers what the change returned.
func (req *request) renewedWith(answer any, secret identity.Secret, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	req.renewSession(secret)
	return answer, nil
}

// endReplaced ends the session whose cookie came with the log-in, because the new cookie
// replaces it and the browser could not log it out. If this fails, the log-in succeeds, and the
// old session ends when it expires.
func (req *request) endReplaced(entry identity.Entry) {
	before, err := req.session()
	if err == nil && before != nil && before.Credential != entry.Account.Credential {
		err = req.runtime.Directory.Logout(req.r.Context(), before)
	}
	if err != nil {
		req.console.logger.Warn("the session before a log-in could not be ended", zap.String("request_id", req.id), zap.Error(err))
	}
}

// session returns the account of the session whose cookie came with the request; nil if
// none is in force.
func (req *request) session() (*identity.Account, error) {
	name, _ := req.console.app.Cookie()
	secret, f := auth.Cookie(req.r.Header, name)
	if f != nil || secret == "" {
		return nil, nil
	}
	account, _, err := req.runtime.Directory.AuthenticateSession(req.r.Context(), secret)
	if addr := auth.Address(req.r); account != nil && addr.IsValid() {
		account.Address = addr.String()
	}
	return account, err
}

// logIn opens a session by name and password. The session gets a new secret; a secret that
// came in a cookie is never adopted.
func logIn(req *request, in credentials) (any, error) {
	return req.answerLogIn(req.runtime.Directory.Login(req.r.Context(), in.Name, in.Password, auth.Device(req.r), req.console.app.Terms()))
}

// logInCode completes a half-open session by a code.
func logInCode(req *request, in code) (any, error) {
	if !req.account.HalfOpen {
		return nil, fault.New(fault.Conflict, "this session needs no second factor")
	}
	return req.answerLogIn(req.runtime.Directory.LoginCode(req.r.Context(), req.account, in.Code))
}

// logOut ends the credential of the request on the server: the session, or the access token
// and the session whose cookie came with it. The cookie is removed after its session has
// ended; otherwise the browser could not try again if that fails.
func logOut(req *request, _ struct{}) (any, error) {
	session := req.account
	if !session.Session {
		var err error
		if session, err = req.session(); err != nil {
			return nil, err
		}
	}
	if session != nil {
		if err := req.runtime.Directory.Logout(req.r.Context(), session); err != nil {
			return nil, err
		}
		req.forgetSession()
	}
	if !req.account.Session {
		if err := req.runtime.Directory.Logout(req.r.Context(), req.account); err != nil {
			return nil, err
		}
	}
	return struct{}{}, nil
}

type passwordChange struct {
	Password    string `json:"password"` // the present one; empty if there is none yet
	Replacement string `json:"new_password"`
}

func (in passwordChange) check() *fault.Fault { return required("new_password", in.Replacement != "") }

// changePassword ends the other sessions and the access token.
func changePassword(req *request, in passwordChange) (any, error) {
	return req.renewed(req.runtime.Directory.ChangePassword(req.r.Context(), req.account, in.Password, in.Replacement))
}

type passwordReset struct {
	Code     string `json:"code"`
	Password string `json:"password"`
}

func (in passwordReset) check() *fault.Fault {
	return cmp.Or(required("code", in.Code != ""), required("password", in.Password != ""))
}

// resetPassword sets a password by the one-time code of an operator or of a mail.
func resetPassword(req *request, in passwordReset) (any, error) {
	removed, err := req.runtime.Directory.ResetPassword(req.r.Context(), in.Code, in.Password, auth.Device(req.r), req.console.app.LoginLimits())
	return struct {
		EmailRemoved bool `json:"email_removed,omitempty"`
	}{removed}, err
}
