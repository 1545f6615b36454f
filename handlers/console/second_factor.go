package console

import (
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

// showFactors answers the second factors of the user, and whether the credential has a step-up in force.
func showFactors(req *request) (any, error) {
	has, err := req.runtime.Directory.Factors(req.r.Context(), req.account.UserID)
	return struct {
		factors
		Verified bool `json:"verified"`
	}{shownFactors(has), req.checkStepUp() == nil}, err
}

// factors are the second factors of a user. Passkeys have a route of their own for their
// details.
type factors struct {
	Enabled     bool `json:"enabled"` // the user has one
	TOTP        bool `json:"totp"`
	BackupCodes int  `json:"backup_codes"` // how many are left
	Passkeys    int  `json:"passkeys"`
}

func shownFactors(f identity.Factors) factors {
	return factors{f.TOTP || len(f.Passkeys) > 0, f.TOTP, f.BackupCodes, len(f.Passkeys)}
}

// setUpTOTP draws the secret of an authenticator app and shows it once. The app is not a factor
// before enableTOTP has accepted a code.
func setUpTOTP(req *request, in proof) (any, error) {
	enrolment, err := req.runtime.Directory.SetUpTOTP(req.r.Context(), req.account, in.Password, req.console.app.Issuer())
	return struct {
		Secret  string `json:"secret"` // base32, for typing
		URI     string `json:"uri"`    // otpauth://, for apps on this device
		QR      string `json:"qr"`     // the same as a picture: a data URL
		Expires int64  `json:"expires_at"`
	}{enrolment.Secret.Reveal(), enrolment.URI.Reveal(), enrolment.QR.Reveal(), enrolment.Expires}, err
}

// enableTOTP makes the app a factor and shows the backup codes once.
func enableTOTP(req *request, in code) (any, error) {
	codes, renewed, err := req.runtime.Directory.EnableTOTP(req.r.Context(), req.account, in.Code)
	return req.renewedWith(shownCodes(codes), renewed, err)
}

func disableTOTP(req *request, in code) (any, error) {
	return req.renewed(req.runtime.Directory.DisableTOTP(req.r.Context(), req.account, in.Code))
}

// renewBackupCodes draws new backup codes; the old ones end.
func renewBackupCodes(req *request, in code) (any, error) {
	codes, renewed, err := req.runtime.Directory.RenewBackupCodes(req.r.Context(), req.account, in.Code)
	return req.renewedWith(shownCodes(codes), renewed, err)
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

// code is a body with a code of an authenticator app, or a backup code.
type code struct {
	Code string `json:"code"`
}

func (in code) check() *fault.Fault { return required("code", in.Code != "") }

type verification struct {
	Method string `json:"method"`
	Code   string `json:"code"`
}

func (in verification) check() *fault.Fault { return required("method", in.Method != "") }

// verifiedMessage is the message of a success; see docs/reference/accounts.md#verification.
const verifiedMessage = "验证成功"

// unverified returns a fault that does not contain the message of a success, even if it
// repeats what was sent. Clients look for that message alone.
func unverified(f *fault.Fault) *fault.Fault {
	if !strings.Contains(f.Message+f.Param, verifiedMessage) {
		return f
	}
	return f.WithMessage("something that was sent is not taken here, and is not repeated either")
}

// verify grants a step-up to the credential of the request for some minutes.
func verify(req *request, in verification) (any, error) {
	lifetime := time.Duration(req.console.app.Verification.Lifetime)
	expires, renewed, err := req.runtime.Directory.Verify(req.r.Context(), req.account, in.Method, in.Code, lifetime)
	return req.renewedWith(envelope{Message: verifiedMessage, Data: struct {
		Verified bool  `json:"verified"`
		Expires  int64 `json:"expires_at"` // Unix seconds
	}{true, expires}}, renewed, err)
}
