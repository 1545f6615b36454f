package identity

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
	"github.com/caddy-modelgate/modelgate/storage"
)

// One-time codes of RFC 6238, with the values that every authenticator app can:
// SHA-1, six digits, steps of 30 s. The seed has the 160 bit of RFC 4226 section
// 4, requirement 6.
const (
	codeDigits  = 6
	stepSeconds = 30
	seedSize    = 20

	// defaultSkew is how many steps a code may be early or late.
	defaultSkew = 1
)

// totpPurpose is what seeds are sealed for, with the id of their user.
const totpPurpose = "totp"

// totpRecord is the TOTP of a user.
type totpRecord struct {
	UserID  string `json:"user_id"`
	Seed    []byte `json:"seed,omitempty"`    // sealed; none: TOTP is off
	Created int64  `json:"created,omitempty"` // Unix seconds

	// LastStep is the step of the last code that was accepted, for any purpose. It stays when
	// TOTP is disabled, so that no code is ever accepted again.
	LastStep int64 `json:"last_step,omitempty"`

	// The enrolment under way: its seed, sealed, when it ends, in Unix seconds,
	// the credential it was begun with, whether there was no factor then, and
	// the epoch of the user's factors.
	Pending      []byte `json:"pending,omitempty"`
	PendingUntil int64  `json:"pending_until,omitempty"`
	PendingBy    string `json:"pending_by,omitempty"`
	PendingFirst bool   `json:"pending_first,omitempty"`
	PendingEpoch int64  `json:"pending_epoch,omitempty"`
}

// SetTOTPSkew sets how many steps of 30 s a TOTP code may be early or late from now on: none or
// one. None requires exact clocks.
func (d *Directory) SetTOTPSkew(steps int) { d.skew.Store(int32(min(max(steps, 0), 1))) }

// isCode reports whether a text has the form of a TOTP code. It is called before the library,
// which would trim.
func isCode(text string) bool {
	return len(text) == codeDigits && strings.Trim(text, "0123456789") == ""
}

// acceptCode checks a TOTP code against a sealed seed of a user. If the code is right, it writes
// record with the code's step as used.
func (d *Directory) acceptCode(t storage.Txn, record *totpRecord, sealed []byte, code string) (bool, error) {
	seed, err := d.keyring.For(totpPurpose).Open(record.UserID, sealed)
	if err != nil {
		return false, fmt.Errorf("the TOTP seed of %s: %w", record.UserID, err)
	}
	step, ok := matchStep(seed, code, d.store.Now(), int64(d.skew.Load()))
	if !ok || step <= record.LastStep {
		return false, nil
	}
	record.LastStep = step
	return true, totpTable.Put(t, nil, record)
}

// matchStep returns the step of which this is the code: the step of the time now, or up to skew
// steps around it. It compares all of them, in constant time. If two have the same code, it
// returns the later one, so that the code is used up for both. A seed of another length never
// matches: the library would compute codes of an empty one.
func matchStep(seed []byte, code string, now time.Time, skew int64) (step int64, ok bool) {
	if len(seed) != seedSize || !isCode(code) {
		return 0, false
	}
	text := seedText(seed)
	current := now.Unix() / stepSeconds
	for s := max(current-skew, 0); s <= current+skew; s++ {
		want, err := hotp.GenerateCode(text, uint64(s))
		if err == nil && subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}

func seedText(seed []byte) string { return base32.StdEncoding.EncodeToString(seed) }

// enrolmentURI returns what authenticator apps read. Everything is escaped with
// %20 rather than +, which some of them would show, and the issuer has no colon,
// at which they part it from the name.
// See https://github.com/google/google-authenticator/wiki/Key-Uri-Format.
func enrolmentURI(issuer, name string, seed []byte) string {
	issuer, name = escape(strings.Join(strings.Fields(strings.ReplaceAll(issuer, ":", " ")), " ")), escape(name)
	return fmt.Sprintf("otpauth://totp/%s:%s?secret=%s&issuer=%s&algorithm=SHA1&digits=%d&period=%d",
		issuer, name, seedText(seed), issuer, codeDigits, stepSeconds)
}

func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// The picture of a QR code, in pixels: the code, and around it the quiet zone
// that scanners need and the library leaves out.
const (
	qrSize  = 320
	qrQuiet = 32
)

// picture returns the QR code of a URI, a PNG as a data: URL.
func picture(uri string) (string, error) {
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

// EnrolmentLife is how long a TOTP enrolment waits for its first code.
const EnrolmentLife = 10 * time.Minute

// Enrolment is a TOTP enrolment under way. It is shown only here. All of it is secret, the
// picture too.
type Enrolment struct {
	Secret  Secret // the seed as base32, to be typed
	URI     Secret // otpauth://…
	QR      Secret // of the URI: a PNG as a data: URL
	Expires int64  // Unix seconds
}

// SetUpTOTP begins to enrol TOTP: it draws a seed that is in force after [Directory.EnableTOTP]
// got a code of it, with the same session or token, within 10 minutes. A first factor needs the
// password, a second one a step-up. An enrolment that began as the first factor fails if the user
// has set up another since. It replaces an enrolment under way. If TOTP is on, it fails with
// CONFLICT.
func (d *Directory) SetUpTOTP(ctx context.Context, a *Account, password, issuer string) (Enrolment, error) {
	first, err := d.mayEnrol(ctx, a, password)
	if err != nil {
		return Enrolment{}, err
	}
	return d.enrolTOTP(ctx, a, issuer, first)
}

func (d *Directory) enrolTOTP(ctx context.Context, a *Account, issuer string, first bool) (Enrolment, error) {
	if err := d.keyring.Mark(ctx, d.store); err != nil {
		return Enrolment{}, locked(err)
	}
	seed := make([]byte, seedSize)
	_, _ = rand.Read(seed) // never fails: it ends the process instead
	uri := enrolmentURI(issuer, a.UserName, seed)
	qr, err := picture(uri)
	if err != nil {
		return Enrolment{}, err
	}
	enrolment := Enrolment{Secret(seedText(seed)), Secret(uri), Secret(qr), d.store.Now().Add(EnrolmentLife).Unix()}
	err = d.store.Update(ctx, func(t storage.Txn) error {
		record, err := totpTable.GetOrZero(t, a.UserID)
		if err != nil {
			return err
		}
		if record.Seed != nil {
			return errTOTPOn
		}
		sealed, err := d.keyring.For(totpPurpose).Seal(a.UserID, seed)
		if err != nil {
			return err
		}
		epoch, err := factorEpoch(t, a.UserID)
		if err != nil {
			return err
		}
		record.UserID = a.UserID
		record.Pending, record.PendingUntil, record.PendingBy = sealed, enrolment.Expires, a.Credential
		record.PendingFirst, record.PendingEpoch = first, epoch
		return totpTable.Put(t, nil, record)
	})
	return enrolment, locked(err)
}

var errTOTPOn = fault.New(fault.Conflict, "an authenticator app is set up already; disable it first")

// EnableTOTP turns on the TOTP that is being enrolled, by a code of it, which is used up. It
// returns the backup codes, which are shown only here, and the new secret of the session.
func (d *Directory) EnableTOTP(ctx context.Context, a *Account, code string) (codes []Secret, renewed Secret, err error) {
	if err := whole(a); err != nil {
		return nil, "", err
	}
	switch {
	case code == "":
		return nil, "", errNoCode
	case !isCode(code):
		return nil, "", fault.At(fault.InvalidParameter, "code", "the code of an authenticator app has %d digits", codeDigits)
	}
	codes = drawBackupCodes()
	err = d.prove(ctx, a, d.enrolmentProof(a, code), func(t storage.Txn) (*audit.Event, error) {
		record, err := mustGet(t, &totpTable, a.UserID)
		if err != nil {
			return nil, err
		}
		record = &totpRecord{UserID: a.UserID, Seed: record.Pending, Created: d.store.Now().Unix(), LastStep: record.LastStep}
		if err := totpTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		if err := d.setBackupCodes(t, a.UserID, codes); err != nil {
			return nil, err
		}
		renewed, err = d.factorsChanged(t, a)
		return a.event("totp.enable", ""), err
	})
	return codes, renewed, err
}

// enrolmentProof returns the proof of a code of the seed that is being enrolled.
func (d *Directory) enrolmentProof(a *Account, code string) proof {
	find := func(r storage.Reader) (*totpRecord, error) {
		record, err := totpTable.GetOrZero(r, a.UserID)
		if err != nil {
			return nil, err
		}
		epoch, err := factorEpoch(r, a.UserID)
		none := fault.New(fault.NoFactor, "no authenticator app is being set up here, or not within %s; begin again", attempts.InWords(EnrolmentLife))
		switch {
		case err != nil:
			return nil, err
		case record.Seed != nil:
			return nil, errTOTPOn
		case record.Pending == nil || record.PendingBy != a.Credential || d.store.Now().Unix() >= record.PendingUntil:
			return nil, none
		}
		if err := d.mayAdd(r, a, record.PendingFirst); err != nil {
			return nil, err
		}
		if record.PendingEpoch != epoch {
			return nil, none
		}
		return record, nil
	}
	return proof{
		guard: totpGuard,
		due:   func(r storage.Reader) error { _, err := find(r); return err },
		check: func(t storage.Txn) (bool, error) {
			record, err := find(t)
			if err != nil {
				return false, err
			}
			return d.acceptCode(t, record, record.Pending, code)
		},
	}
}

// DisableTOTP turns TOTP off, by a TOTP code or a backup code, and deletes the backup codes. It
// returns the new secret of the session.
func (d *Directory) DisableTOTP(ctx context.Context, a *Account, code string) (renewed Secret, err error) {
	if err := whole(a); err != nil {
		return "", err
	}
	err = d.proveCode(ctx, a, code, func(t storage.Txn) (*audit.Event, error) {
		record, err := mustGet(t, &totpTable, a.UserID)
		if err != nil {
			return nil, err
		}
		if err := totpTable.Put(t, nil, &totpRecord{UserID: a.UserID, LastStep: record.LastStep}); err != nil {
			return nil, err
		}
		if err := backupTable.Delete(t, a.UserID); err != nil {
			return nil, err
		}
		renewed, err = d.factorsChanged(t, a)
		return a.event("totp.disable", ""), err
	})
	return renewed, err
}
