package factor

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Backup codes replace a lost authenticator app. Each has 12 digits of Crockford's base 32
// (60 bit), in groups of four.
const (
	backupCodes  = 10
	backupDigits = 12
	backupGroup  = 4
)

// backupPurpose is the purpose with which the hashes of backup codes are sealed, together with the
// id of their user. Without the seal, the codes of a stolen store could be guessed: they have 60 bits.
const backupPurpose = "backup"

// backupRecord has the unused backup codes of a user.
type backupRecord struct {
	UserID  string `json:"user_id"`
	Left    int    `json:"left"`
	Sealed  []byte `json:"sealed"`  // the concatenated hashes of the unused codes
	Created int64  `json:"created"` // Unix seconds
}

var backupTable = table.Table[backupRecord]{Name: "backup", Key: func(r *backupRecord) table.Key { return table.Key{r.UserID} }}

// drawBackupCodes returns a new random set of backup codes.
func drawBackupCodes() []credential.Secret {
	codes := make([]credential.Secret, backupCodes)
	for i := range codes {
		codes[i] = credential.DrawCode(backupDigits, backupGroup)
	}
	return codes
}

// readBackupCode returns the digits of a backup code as a person types it.
func readBackupCode(text string) (string, bool) { return credential.ReadCode(text, backupDigits) }

func hashBackupCode(userID, digits string) credential.Hash {
	return sha256.Sum256([]byte("backup code\x00" + userID + "\x00" + digits))
}

// setBackupCodes replaces the backup codes of a user.
func (s *Service) setBackupCodes(t storage.Txn, userID string, codes []credential.Secret) error {
	hashes := make([]byte, 0, len(codes)*len(credential.Hash{}))
	for _, code := range codes {
		digits, _ := readBackupCode(code.Reveal())
		hash := hashBackupCode(userID, digits)
		hashes = append(hashes, hash[:]...)
	}
	return s.putBackupCodes(t, &backupRecord{UserID: userID, Created: s.store.Now().Unix()}, hashes)
}

func (s *Service) putBackupCodes(t storage.Txn, record *backupRecord, hashes []byte) (err error) {
	if record.Sealed, err = s.keyring.For(backupPurpose).Seal(record.UserID, hashes); err != nil {
		return err
	}
	record.Left = len(hashes) / len(credential.Hash{})
	return backupTable.Put(t, nil, record)
}

// useBackupCode removes a code from the unused codes of a user, and reports whether it was one of
// them. It compares all of them, so that its time reveals nothing.
func (s *Service) useBackupCode(t storage.Txn, userID, digits string) (bool, error) {
	record, err := backupTable.Get(t, userID)
	if err != nil || record == nil {
		return false, err
	}
	hashes, err := s.keyring.For(backupPurpose).Open(userID, record.Sealed)
	if err != nil {
		return false, fmt.Errorf("the backup codes of %s: %w", userID, err)
	}
	hash := hashBackupCode(userID, digits)
	var left []byte
	for len(hashes) >= len(hash) {
		if subtle.ConstantTimeCompare(hashes[:len(hash)], hash[:]) == 0 {
			left = append(left, hashes[:len(hash)]...)
		}
		hashes = hashes[len(hash):]
	}
	if len(left)/len(hash) == record.Left {
		return false, nil
	}
	return true, s.putBackupCodes(t, record, left)
}

// RenewBackupCodes replaces the backup codes of a user with ten new ones. It needs a TOTP code or
// an old backup code.
func (s *Service) RenewBackupCodes(ctx context.Context, h Holder, code string, effect Effect) ([]credential.Secret, error) {
	codes := drawBackupCodes()
	return codes, s.ProveCode(ctx, h, code, func(t storage.Txn) (*audit.Event, error) {
		if err := s.setBackupCodes(t, h.UserID, codes); err != nil {
			return nil, err
		}
		return h.changed(t, "backup_codes.renew", "", effect)
	})
}
