package console

import (
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// newcomer is the body by which people come: with a name and a password.
type newcomer struct {
	Name     string `json:"username"`
	Password string `json:"password"`
}

// check says what is missing.
func (n newcomer) check() *fault.Fault {
	switch {
	case n.Name == "":
		return missing("username")
	case n.Password == "":
		return missing("password")
	}
	return nil
}

// person is who was made or let in.
type person struct {
	ID    string `json:"id"`
	Name  string `json:"username"`
	Admin bool   `json:"admin,omitempty"`
}

// register makes an account, where the operator lets everybody have one. It does
// not log in: that is asked for by itself.
func register(req *request) error {
	if !req.console.app.OpenRegistration() {
		return fault.New(fault.Forbidden, "accounts are made by the operator here; registration is closed")
	}
	in, f := decode[newcomer](req)
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	made, err := req.runtime.Directory.Register(req.r.Context(), in.Name, in.Password, auth.Device(req.r), req.console.app.Pace())
	if err != nil {
		return err
	}
	return req.answer(person{made.ID, made.Name, made.Admin})
}

// setUp makes the first administrator, by the code that stands in the log as
// long as there is no user.
func setUp(req *request) error {
	in, f := decode[struct {
		Code string `json:"code"`
		newcomer
	}](req)
	if f == nil && in.Code == "" {
		f = missing("code")
	}
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	made, err := req.runtime.Directory.Setup(req.r.Context(), in.Code, in.Name, in.Password)
	if err != nil {
		return err
	}
	return req.answer(person{made.ID, made.Name, made.Admin})
}

// welcome is the answer to a log-in.
type welcome struct {
	SecondFactor bool     `json:"require_2fa"`
	Methods      []string `json:"methods,omitempty"` // by which what is due can be given
	Person       *person  `json:"user,omitempty"`    // who is in; nobody while something is due
	Expires      int64    `json:"expires_at"`        // Unix seconds
}

// welcome answers a log-in, whole or half-open.
func (req *request) welcome(entry identity.Entry) error {
	req.endReplaced(entry)
	req.keepEntry(entry)
	w := welcome{SecondFactor: len(entry.Factors) > 0, Methods: entry.Factors, Expires: entry.Expires}
	if !w.SecondFactor {
		w.Person = &person{ID: entry.Account.UserID, Name: entry.Account.UserName}
	}
	return req.answer(w)
}

// endReplaced ends the session whose cookie the browser has sent along and now
// loses: nobody could log it out any more. The log-in stands whatever comes of
// that, and a session that cannot be ended now ends by itself.
func (req *request) endReplaced(entry identity.Entry) {
	before, err := req.session()
	if err == nil && before != nil && before.Credential != entry.Account.Credential {
		err = req.runtime.Directory.Logout(req.r.Context(), before)
	}
	if err != nil {
		req.console.logger.Warn("the session before a log-in could not be ended", zap.String("request_id", req.id), zap.Error(err))
	}
}

// session returns the account of the session whose cookie was sent along; nil
// where there is none in force.
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

// logIn opens a session by name and password, under a secret of its own: the one
// in a cookie that came along is never taken over.
func logIn(req *request) error {
	in, f := decode[newcomer](req)
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	entry, err := req.runtime.Directory.Login(req.r.Context(), in.Name, in.Password, auth.Device(req.r), req.console.app.Terms())
	if err != nil {
		return err
	}
	return req.welcome(entry)
}

// code is a body that proves something by a code: of an authenticator app, or a
// backup code.
type code struct {
	Code string `json:"code"`
}

func (req *request) code() (string, *fault.Fault) {
	in, f := decode[code](req)
	if f == nil && in.Code == "" {
		f = missing("code")
	}
	return in.Code, f
}

// logInCode makes a half-open session whole.
func logInCode(req *request) error {
	in, f := req.code()
	switch {
	case f != nil:
		return f
	case !req.account.HalfOpen:
		return fault.New(fault.Conflict, "this session is whole: no second factor is due")
	}
	entry, err := req.runtime.Directory.LoginCode(req.r.Context(), req.account, in)
	if err != nil {
		return err
	}
	return req.welcome(entry)
}

// logOut ends on the server what the request came by: the session, which it takes
// out of the browser too, or the access token, with the session that was sent
// beside it. A cookie is forgotten only where its session has ended: else nobody
// could log it out any more.
func logOut(req *request) error {
	if _, f := decodeMaybe[struct{}](req); f != nil {
		return f
	}
	session := req.account
	if !session.Session {
		var err error
		if session, err = req.session(); err != nil {
			return err
		}
	}
	if session != nil {
		if err := req.runtime.Directory.Logout(req.r.Context(), session); err != nil {
			return err
		}
		req.forget()
	}
	if !req.account.Session {
		if err := req.runtime.Directory.Logout(req.r.Context(), req.account); err != nil {
			return err
		}
	}
	return req.answer(struct{}{})
}

// changePassword ends the other sessions and the access token.
func changePassword(req *request) error {
	in, f := decode[struct {
		Password    string `json:"password"` // the present one; there may be none yet
		Replacement string `json:"new_password"`
	}](req)
	if f == nil && in.Replacement == "" {
		f = missing("new_password")
	}
	if f != nil {
		return f
	}
	secret, err := req.runtime.Directory.ChangePassword(req.r.Context(), req.account, in.Password, in.Replacement)
	if err != nil {
		return err
	}
	req.renew(secret)
	return req.answer(struct{}{})
}

// resetPassword sets a password by the one-time code of an operator.
func resetPassword(req *request) error {
	in, f := decode[struct {
		Code     string `json:"code"`
		Password string `json:"password"`
	}](req)
	switch {
	case f != nil:
		return f
	case in.Code == "":
		return missing("code")
	case in.Password == "":
		return missing("password")
	}
	if err := req.runtime.Directory.ResetPassword(req.r.Context(), in.Code, in.Password, auth.Device(req.r), req.console.app.Pace()); err != nil {
		return err
	}
	return req.answer(struct{}{})
}
