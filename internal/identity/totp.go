package identity

import (
	"bytes"
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

	// LastStep is the step of the last code that was accepted, for whatever
	// purpose. It stays when TOTP is disabled: no code is ever accepted again.
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

// SetTOTPSkew sets how many steps of 30 s a TOTP code may be early or late, from
// now on. One step is usual; none demands exact clocks.
func (d *Directory) SetTOTPSkew(steps int) { d.skew.Store(int32(min(max(steps, 0), 1))) }

// isCode tells whether a text has the form of a TOTP code. It is asked before
// the library, which would trim.
func isCode(text string) bool {
	if len(text) != codeDigits {
		return false
	}
	for _, c := range []byte(text) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

// acceptCode checks a TOTP code against a sealed seed of a user, and where it is
// right uses up its step in record, which it writes.
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

// matchStep returns the step of which this is the code: the one of the time
// now, or of up to skew steps around it. All of them are compared, in the same
// time whichever matches; of two that happen to have the same code the later
// one counts, so that the code is used up for both. A seed that is none never
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
