package console

import "github.com/caddy-modelgate/modelgate/internal/identity"

// proof is the password in a body that asks for it again, of users who have no
// second factor.
type proof struct {
	Password string `json:"password"`
}

// showFactors tells by what the user can prove himself, beside his password.
func showFactors(req *request) error {
	factors, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	if err != nil {
		return err
	}
	return req.answer(shownFactors(factors))
}

// factors are what a user has, without the details of passkeys, which have a
// route of their own.
type factors struct {
	Enabled     bool `json:"enabled"` // there is any
	TOTP        bool `json:"totp"`
	BackupCodes int  `json:"backup_codes"` // how many are left
	Passkeys    int  `json:"passkeys"`
}

func shownFactors(f identity.Factors) factors {
	return factors{f.TOTP || len(f.Passkeys) > 0, f.TOTP, f.BackupCodes, len(f.Passkeys)}
}

// setUpTOTP draws the secret of an authenticator app and shows it, this once. It
// opens nothing until a code of it was sent to enable.
func setUpTOTP(req *request) error {
	in, f := decodeMaybe[proof](req)
	if f != nil {
		return f
	}
	enrolment, err := req.runtime.Directory.SetUpTOTP(req.r.Context(), req.account, in.Password, req.console.app.Issuer())
	if err != nil {
		return err
	}
	return req.answer(struct {
		Secret  string `json:"secret"` // base32, for typing
		URI     string `json:"uri"`    // otpauth://, for apps on this device
		QR      string `json:"qr"`     // the same as a picture: a data URL
		Expires int64  `json:"expires_at"`
	}{enrolment.Secret.Reveal(), enrolment.URI.Reveal(), enrolment.QR.Reveal(), enrolment.Expires})
}

// enableTOTP confirms the app by a code of it, and shows the backup codes, this
// once.
func enableTOTP(req *request) error {
	in, f := req.code()
	if f != nil {
		return f
	}
	codes, renewed, err := req.runtime.Directory.EnableTOTP(req.r.Context(), req.account, in)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(shownCodes(codes))
}

func disableTOTP(req *request) error {
	in, f := req.code()
	if f != nil {
		return f
	}
	renewed, err := req.runtime.Directory.DisableTOTP(req.r.Context(), req.account, in)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(struct{}{})
}

// renewBackupCodes draws new backup codes; those before end.
func renewBackupCodes(req *request) error {
	in, f := req.code()
	if f != nil {
		return f
	}
	codes, renewed, err := req.runtime.Directory.RenewBackupCodes(req.r.Context(), req.account, in)
	if err != nil {
		return err
	}
	req.renew(renewed)
	return req.answer(shownCodes(codes))
}

// backupCodes are shown once.
type backupCodes struct {
	Codes []string `json:"backup_codes"`
}

func shownCodes(codes []identity.Secret) backupCodes {
	shown := backupCodes{make([]string, len(codes))}
	for i, code := range codes {
		shown.Codes[i] = code.Reveal()
	}
	return shown
}
