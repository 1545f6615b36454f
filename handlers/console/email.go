package console

import (
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/auth"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/mail"
)

// selfChange is a change of the profile.
type selfChange struct {
	identity.Profile
	proof
}

// needsMail reports whether the change asks for mails.
func (in selfChange) needsMail() bool {
	return in.Email != nil && *in.Email != "" || in.BalanceNotice != nil && *in.BalanceNotice != 0
}

// changeSelf changes the profile and answers the account. A new address gets a mail with a code.
func changeSelf(req *request, in selfChange) (any, error) {
	if f := req.console.app.CheckMail(); f != nil && in.needsMail() {
		return nil, f
	}
	in.Language = dialect.LanguageOf(req.r)
	mails, err := req.runtime.Directory.ChangeProfile(req.r.Context(), req.account, in.Profile)
	if err != nil {
		return nil, err
	}
	if mails.Confirm != nil {
		req.console.app.SendMail(req.runtime, mail.Confirm, *mails.Confirm, mail.Facts{Code: mails.Code.Reveal(), Link: "/security#email"})
	}
	req.mailEarlier(mails.Earlier)
	return showSelf(req)
}

// confirmEmail puts the address of the user in force, by the mailed code. The device of the session
// becomes known, so that its next log-in is not mailed.
func confirmEmail(req *request, in code) (any, error) {
	earlier, err := req.runtime.Directory.ConfirmEmail(req.r.Context(), req.account, in.Code)
	if err != nil {
		return nil, err
	}
	req.mailEarlier(earlier)
	if req.account.Session {
		req.noteDevice(req.account.UserID, nil)
	}
	return showSelf(req)
}

// mailEarlier mails to the earlier address of an account that it was changed or removed: an attacker
// may have done so. Without a mail server, it sends nothing.
func (req *request) mailEarlier(to *identity.Recipient) {
	if to != nil && req.console.app.CheckMail() == nil {
		req.console.app.SendMail(req.runtime, mail.Earlier, *to, mail.Facts{Link: "/security"})
	}
}

type forgottenPassword struct {
	Name string `json:"username"`
}

func (in forgottenPassword) check() *fault.Fault { return required("username", in.Name != "") }

// forgotPassword mails a code for a new password to the user. The answer is the same for all names.
func forgotPassword(req *request, in forgottenPassword) (any, error) {
	app, runtime := req.console.app, req.runtime
	if f := app.CheckMail(); f != nil {
		return nil, f
	}
	return struct{}{}, runtime.Directory.ForgotPassword(req.r.Context(), in.Name, auth.Device(req.r), app.LoginLimits(),
		func(to identity.Recipient, code identity.Secret) {
			app.SendMail(runtime, mail.Reset, to, mail.Facts{Code: code.Reveal(), Link: "/reset?code=" + code.Reveal()})
		})
}

// mailLogIn returns a function that mails the log-in by this request. It may run when the request has
// ended.
func (req *request) mailLogIn() func(identity.Recipient) {
	app, runtime, from := req.console.app, req.runtime, auth.Device(req.r)
	facts := mail.Facts{Link: "/security", Time: runtime.Store.Now().UTC().Format(time.DateTime), Device: mail.Device(from.Agent)}
	if from.Address.IsValid() {
		facts.Address = from.Address.Unmap().String()
	}
	return func(to identity.Recipient) { app.SendMail(runtime, mail.LogIn, to, facts) }
}
