package identity

import (
	"context"
	"crypto/rand"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// EnrolmentLife is how long a TOTP enrolment waits for its first code.
const EnrolmentLife = 10 * time.Minute

// Enrolment is a TOTP enrolment under way, as it is shown this once. All of it
// is secret, the picture too.
type Enrolment struct {
	Secret  Secret // the seed as base32, to be typed
	URI     Secret // otpauth://…
	QR      Secret // of the URI: a PNG as a data: URL
	Expires int64  // Unix seconds
}

// SetUpTOTP begins to enrol TOTP: it draws a seed that is in force once
// [Directory.EnableTOTP] was given a code of it, by the same session or token,
// within 10 minutes. A first factor demands the password, a second one a
// verification by the first; what was begun as the first does not end beside
// another that was set up since. It replaces an enrolment under way; TOTP that
// is on is a CONFLICT.
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
	if err != nil {
		return Enrolment{}, locked(err)
	}
	return enrolment, nil
}

var errTOTPOn = fault.New(fault.Conflict, "an authenticator app is set up already; disable it first")

// EnableTOTP turns on the TOTP that is being enrolled, by a code of it, which is
// used up. It returns the backup codes, which are shown this once, and the new
// secret of the session.
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
		if err := dropStamps(t, a.UserID); err != nil {
			return nil, err
		}
		record = &totpRecord{UserID: a.UserID, Seed: record.Pending, Created: d.store.Now().Unix(), LastStep: record.LastStep}
		if err := totpTable.Put(t, nil, record); err != nil {
			return nil, err
		}
		if err := d.setBackupCodes(t, a.UserID, codes); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return &audit.Event{Actor: a.UserID, Action: "totp.enable", User: a.UserID, Address: a.Address}, err
	})
	if err != nil {
		return nil, "", err
	}
	return codes, renewed, nil
}

// enrolmentProof proves a code of the seed that is being enrolled.
func (d *Directory) enrolmentProof(a *Account, code string) proof {
	find := func(r storage.Reader) (*totpRecord, error) {
		record, err := totpTable.GetOrZero(r, a.UserID)
		if err != nil {
			return nil, err
		}
		epoch, err := factorEpoch(r, a.UserID)
		none := fault.New(fault.NoFactor, "no authenticator app is being set up here, or not within %s; begin again", inWords(EnrolmentLife))
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

// DisableTOTP turns TOTP off, by a TOTP code or a backup code, and ends the
// backup codes with it. It returns the new secret of the session.
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
		if err := dropStamps(t, a.UserID); err != nil {
			return nil, err
		}
		renewed, err = d.renewSession(t, a)
		return &audit.Event{Actor: a.UserID, Action: "totp.disable", User: a.UserID, Address: a.Address}, err
	})
	if err != nil {
		return "", err
	}
	return renewed, nil
}
