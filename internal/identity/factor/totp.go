package factor

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"net/url"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// One-time codes of RFC 6238, with the parameters that every authenticator app
// supports: SHA-1, six digits, steps of 30 s. The seed has the 160 bits of RFC
// 4226 section 4, requirement 6.
const (
	codeDigits  = 6
	stepSeconds = 30
	seedSize    = 20

	// defaultSkew is how many steps a code may be early or late.
	defaultSkew = 1
)

// totpPurpose is the purpose with which seeds are sealed, together with the id of their user.
const totpPurpose = "totp"

// TOTP is the stored TOTP of a user.
type TOTP struct {
	UserID  string `json:"user_id"`
	Seed    []byte `json:"seed,omitempty"`    // sealed; none: TOTP is off
	Created int64  `json:"created,omitempty"` // Unix seconds

	// LastStep is the step of the last code that was accepted, for any purpose. It stays when
	// TOTP is disabled, so that no code is ever accepted again.
	LastStep int64 `json:"last_step,omitempty"`

	// The unfinished enrolment: its sealed seed, its end in Unix seconds, and the
	// credential that began it. PendingFirst means that the user had no factor
	// then. PendingEpoch is the epoch of the user's factors.
	Pending      []byte `json:"pending,omitempty"`
	PendingUntil int64  `json:"pending_until,omitempty"`
	PendingBy    string `json:"pending_by,omitempty"`
	PendingFirst bool   `json:"pending_first,omitempty"`
	PendingEpoch int64  `json:"pending_epoch,omitempty"`
}

// TOTPTable has the TOTP of each user who has or had one.
var TOTPTable = table.Table[TOTP]{Name: "totp", Key: func(r *TOTP) table.Key { return table.Key{r.UserID} }}

// findTOTP returns the TOTP of a user. If it is off, it fails with NO_FACTOR.
func (s *Service) findTOTP(r storage.Reader, h Holder) (*TOTP, error) {
	record, err := TOTPTable.GetOrZero(r, h.UserID)
	if err == nil && record.Seed == nil {
		err = errNoTOTP
	}
	return record, err
}

// SetTOTPSkew sets how many steps of 30 s a TOTP code may be early or late from now on: zero or
// one. Zero requires exact clocks.
func (s *Service) SetTOTPSkew(steps int) { s.skew.Store(int32(min(max(steps, 0), 1))) }

// isCode reports whether a text has the form of a TOTP code. It is called before the library,
// which would trim spaces.
func isCode(text string) bool {
	return len(text) == codeDigits && strings.Trim(text, "0123456789") == ""
}

// acceptCode checks a TOTP code against a sealed seed of a user. If the code is right, it writes
// record with the code's step as used.
func (s *Service) acceptCode(t storage.Txn, record *TOTP, sealed []byte, code string) (bool, error) {
	seed, err := s.keyring.For(totpPurpose).Open(record.UserID, sealed)
	if err != nil {
		return false, fmt.Errorf("the TOTP seed of %s: %w", record.UserID, err)
	}
	step, ok := matchStep(seed, code, s.store.Now(), int64(s.skew.Load()))
	if !ok || step <= record.LastStep {
		return false, nil
	}
	record.LastStep = step
	return true, TOTPTable.Put(t, nil, record)
}

// matchStep returns the step that has this code: the current step, or one at most skew steps from
// it. It compares all of them, in constant time. If two have the same code, it returns the
// later one, so that the code is used up for both. A seed of another length never matches,
// because the library would compute codes of an empty seed.
func matchStep(seed []byte, code string, now time.Time, skew int64) (step int64, ok bool) {
	if len(seed) != seedSize || !isCode(code) {
		return 0, false
	}
	text := seedText(seed)
	current := now.Unix() / stepSeconds
	for at := max(current-skew, 0); at <= current+skew; at++ {
		want, err := hotp.GenerateCode(text, uint64(at))
		if err == nil && subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			step, ok = at, true
		}
	}
	return step, ok
}

func seedText(seed []byte) string { return base32.StdEncoding.EncodeToString(seed) }

// enrolmentURI returns the URI that authenticator apps read. Spaces are escaped as
// %20, because some apps would show a +. The issuer has no colon, because a colon separates
// it from the name.
// See https://github.com/google/google-authenticator/wiki/Key-Uri-Format.
func enrolmentURI(issuer, name string, seed []byte) string {
	issuer, name = escape(strings.Join(strings.Fields(strings.ReplaceAll(issuer, ":", " ")), " ")), escape(name)
	return fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s&algorithm=SHA1&digits=%d&period=%d",
		issuer, name, seedText(seed), issuer, codeDigits, stepSeconds)
}

func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// The size of the image of a QR code in pixels, and the quiet zone around the code. Scanners
// need that zone, and the library does not add it.
const (
	qrSize  = 320
	qrQuiet = 32
)

// qrImage returns the QR code of a URI, a PNG as a data: URL.
func qrImage(uri string) (string, error) {
	key, err := otp.NewKeyFromURL(uri)
	if err != nil {
		return "", err
	}
	code, err := key.Image(qrSize, qrSize)
	if err != nil {
		return "", err
	}
	canvas := image.NewPaletted(image.Rect(0, 0, qrSize+2*qrQuiet, qrSize+2*qrQuiet), color.Palette{color.White, color.Black})
	draw.Draw(canvas, image.Rect(qrQuiet, qrQuiet, qrQuiet+qrSize, qrQuiet+qrSize), code, code.Bounds().Min, draw.Src)
	var file bytes.Buffer
	if err := png.Encode(&file, canvas); err != nil {
		return "", err
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(file.Bytes()), nil
}

// enrolmentLife is how long a TOTP enrolment waits for its first code.
const enrolmentLife = 10 * time.Minute

// Enrolment is an unfinished TOTP enrolment. It is shown only once. All fields except Expires are
// secret, including the QR code.
type Enrolment struct {
	Secret  credential.Secret // the seed as base32, for manual input
	URI     credential.Secret // otpauth://…
	QR      credential.Secret // of the URI: a PNG as a data: URL
	Expires int64             // Unix seconds
}

// SetUpTOTP begins to enrol TOTP with a new seed. [Service.EnableTOTP] must get a code of it within
// 10 minutes, with the same credential. It replaces an unfinished enrolment. If TOTP is on, it
// returns CONFLICT. The argument first means that the user has no factor yet.
func (s *Service) SetUpTOTP(ctx context.Context, h Holder, issuer string, first bool) (Enrolment, error) {
	if err := s.keyring.Mark(ctx, s.store); err != nil {
		return Enrolment{}, SealFault(err)
	}
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails: it ends the process instead
	uri := enrolmentURI(issuer, h.UserName, seed)
	qr, err := qrImage(uri)
	if err != nil {
		return Enrolment{}, err
	}
	enrolment := Enrolment{credential.Secret(seedText(seed)), credential.Secret(uri), credential.Secret(qr), s.store.Now().Add(enrolmentLife).Unix()}
	err = s.store.Update(ctx, func(t storage.Txn) error {
		record, err := TOTPTable.GetOrZero(t, h.UserID)
		if err != nil {
			return err
		}
		if record.Seed != nil {
			return errTOTPOn
		}
		sealed, err := s.keyring.For(totpPurpose).Seal(h.UserID, seed)
		if err != nil {
			return err
		}
		epoch, err := epochOf(t, h.UserID)
		if err != nil {
			return err
		}
		record.UserID = h.UserID
		record.Pending, record.PendingUntil, record.PendingBy = sealed, enrolment.Expires, h.Credential
		record.PendingFirst, record.PendingEpoch = first, epoch
		return TOTPTable.Put(t, nil, record)
	})
	return enrolment, SealFault(err)
}

var errTOTPOn = fault.New(fault.Conflict, "an authenticator app is set up already; disable it first")

// EnableTOTP turns on the TOTP that is being enrolled, by a code of it, and uses up the code. It
// returns the backup codes, which are shown only here.
func (s *Service) EnableTOTP(ctx context.Context, h Holder, code string, effect Effect) ([]credential.Secret, error) {
	switch {
	case code == "":
		return nil, errNoCode
	case !isCode(code):
		return nil, fault.At(fault.InvalidParameter, "code", "the code of an authenticator app has %d digits", codeDigits)
	}
	codes := drawBackupCodes()
	var record *TOTP
	return codes, s.prove(ctx, h, totpGuard, errWrongCode, s.pending, func(t storage.Txn, pending *TOTP) (bool, error) {
		record = pending
		return s.acceptCode(t, pending, pending.Pending, code)
	}, func(t storage.Txn) (*audit.Event, error) {
		record = &TOTP{UserID: h.UserID, Seed: record.Pending, Created: s.store.Now().Unix(), LastStep: record.LastStep}
		if err := TOTPTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		if err := s.setBackupCodes(t, h.UserID, codes); err != nil {
			return nil, err
		}
		return h.changed(t, "totp.enable", "", effect)
	})
}

// pending returns the TOTP of a user if it is being enrolled with the same credential.
func (s *Service) pending(r storage.Reader, h Holder) (*TOTP, error) {
	record, err := TOTPTable.GetOrZero(r, h.UserID)
	if err != nil {
		return nil, err
	}
	epoch, err := epochOf(r, h.UserID)
	none := fault.New(fault.NoFactor, "no set-up of an authenticator app was started in this session within %s; start again", attempts.Words(enrolmentLife))
	switch {
	case err != nil:
		return nil, err
	case record.Seed != nil:
		return nil, errTOTPOn
	case record.Pending == nil || record.PendingBy != h.Credential || s.store.Now().Unix() >= record.PendingUntil:
		return nil, none
	}
	if err := s.mayAdd(r, h, record.PendingFirst); err != nil {
		return nil, err
	}
	if record.PendingEpoch != epoch {
		return nil, none
	}
	return record, nil
}

// DisableTOTP turns TOTP off, by a TOTP code or a backup code, and deletes the backup codes.
func (s *Service) DisableTOTP(ctx context.Context, h Holder, code string, effect Effect) error {
	return s.ProveCode(ctx, h, code, func(t storage.Txn) (*audit.Event, error) {
		record, err := s.findTOTP(t, h)
		if err != nil {
			return nil, err
		}
		if err := TOTPTable.Put(t, nil, &TOTP{UserID: h.UserID, LastStep: record.LastStep}); err != nil {
			return nil, err
		}
		if err := backupTable.Delete(t, h.UserID); err != nil {
			return nil, err
		}
		return h.changed(t, "totp.disable", "", effect)
	})
}
