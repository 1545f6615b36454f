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
func register(v *visit) error {
	if !v.console.app.OpenRegistration() {
		return fault.New(fault.Forbidden, "accounts are made by the operator here; registration is closed")
	}
	in, f := decode[newcomer](v)
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	made, err := v.runtime.Directory.Register(v.r.Context(), in.Name, in.Password, auth.Device(v.r), v.console.app.LoginLimits())
	if err != nil {
		return err
	}
	return v.answer(person{made.ID, made.Name, made.Admin})
}

// setUp makes the first administrator, by the code that stands in the log as
// long as there is no user.
func setUp(v *visit) error {
	in, f := decode[struct {
		Code string `json:"code"`
		newcomer
	}](v)
	if f == nil && in.Code == "" {
		f = missing("code")
	}
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	made, err := v.runtime.Directory.Setup(v.r.Context(), in.Code, in.Name, in.Password)
	if err != nil {
		return err
	}
	return v.answer(person{made.ID, made.Name, made.Admin})
}

// welcome is the answer to a log-in.
type welcome struct {
	SecondFactor bool     `json:"require_2fa"`
	Methods      []string `json:"methods,omitempty"` // by which what is due can be given
	Person       *person  `json:"user,omitempty"`    // who is in; nobody while something is due
	Expires      int64    `json:"expires_at"`        // Unix seconds
}

// welcome answers a log-in, whole or half-open.
func (v *visit) welcome(entry identity.Entry) error {
	v.endReplaced(entry)
	v.keepEntry(entry)
	w := welcome{SecondFactor: len(entry.Factors) > 0, Methods: entry.Factors, Expires: entry.Expires}
	if !w.SecondFactor {
		w.Person = &person{ID: entry.Account.UserID, Name: entry.Account.UserName}
	}
	return v.answer(w)
}

// endReplaced ends the session whose cookie the browser has sent along and now
// loses: nobody could log it out any more. The log-in stands whatever comes of
// that, and a session that cannot be ended now ends by itself.
func (v *visit) endReplaced(entry identity.Entry) {
	before, err := v.session()
	if err == nil && before != nil && before.Credential != entry.Account.Credential {
		err = v.runtime.Directory.Logout(v.r.Context(), before)
	}
	if err != nil {
		v.console.logger.Warn("the session before a log-in could not be ended", zap.String("request_id", v.id), zap.Error(err))
	}
}

// session returns the account of the session whose cookie was sent along; nil
// where there is none in force.
func (v *visit) session() (*identity.Account, error) {
	name, _ := v.console.app.Cookie()
	secret, f := auth.Cookie(v.r.Header, name)
	if f != nil || secret == "" {
		return nil, nil
	}
	account, _, err := v.runtime.Directory.AuthenticateSession(v.r.Context(), secret)
	if addr := auth.Address(v.r); account != nil && addr.IsValid() {
		account.Address = addr.String()
	}
	return account, err
}

// logIn opens a session by name and password, under a secret of its own: the one
// in a cookie that came along is never taken over.
func logIn(v *visit) error {
	in, f := decode[newcomer](v)
	if f == nil {
		f = in.check()
	}
	if f != nil {
		return f
	}
	entry, err := v.runtime.Directory.Login(v.r.Context(), in.Name, in.Password, auth.Device(v.r), v.console.app.Terms())
	if err != nil {
		return err
	}
	return v.welcome(entry)
}

// code is a body that proves something by a code: of an authenticator app, or a
// backup code.
type code struct {
	Code string `json:"code"`
}

func (v *visit) code() (string, *fault.Fault) {
	in, f := decode[code](v)
	if f == nil && in.Code == "" {
		f = missing("code")
	}
	return in.Code, f
}

// logInCode makes a half-open session whole.
func logInCode(v *visit) error {
	in, f := v.code()
	switch {
	case f != nil:
		return f
	case !v.account.HalfOpen:
		return fault.New(fault.Conflict, "this session is whole: no second factor is due")
	}
	entry, err := v.runtime.Directory.LoginCode(v.r.Context(), v.account, in)
	if err != nil {
		return err
	}
	return v.welcome(entry)
}

// logOut ends on the server what the request came by: the session, which it takes
// out of the browser too, or the access token, with the session that was sent
// beside it. A cookie is forgotten only where its session has ended: else nobody
// could log it out any more.
func logOut(v *visit) error {
	if _, f := decodeMaybe[struct{}](v); f != nil {
		return f
	}
	session := v.account
	if !session.Session {
		var err error
		if session, err = v.session(); err != nil {
			return err
		}
	}
	if session != nil {
		if err := v.runtime.Directory.Logout(v.r.Context(), session); err != nil {
			return err
		}
		v.forget()
	}
	if !v.account.Session {
		if err := v.runtime.Directory.Logout(v.r.Context(), v.account); err != nil {
			return err
		}
	}
	return v.answer(struct{}{})
}

// changePassword ends the other sessions and the access token.
func changePassword(v *visit) error {
	in, f := decode[struct {
		Password    string `json:"password"` // the present one; there may be none yet
		Replacement string `json:"new_password"`
	}](v)
	if f == nil && in.Replacement == "" {
		f = missing("new_password")
	}
	if f != nil {
		return f
	}
	secret, err := v.runtime.Directory.ChangePassword(v.r.Context(), v.account, in.Password, in.Replacement)
	if err != nil {
		return err
	}
	v.renew(secret)
	return v.answer(struct{}{})
}

// resetPassword sets a password by the one-time code of an operator.
func resetPassword(v *visit) error {
	in, f := decode[struct {
		Code     string `json:"code"`
		Password string `json:"password"`
	}](v)
	switch {
	case f != nil:
		return f
	case in.Code == "":
		return missing("code")
	case in.Password == "":
		return missing("password")
	}
	if err := v.runtime.Directory.ResetPassword(v.r.Context(), in.Code, in.Password, auth.Device(v.r), v.console.app.LoginLimits()); err != nil {
		return err
	}
	return v.answer(struct{}{})
}
