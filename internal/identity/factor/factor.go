// Package factor owns the second factors of users: TOTP with its backup codes, and passkeys. It keeps
// their records, checks codes and answers, and grants step-ups. [Service] has all operations. It
// identifies a user by a [Holder], and does not manage names, passwords and sessions. An operation that
// concerns a session runs a function of its caller in the same transaction.
package factor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/reseal"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Service manages the second factors of the users of one store. Its methods may be called concurrently.
type Service struct {
	store   *storage.Store
	keyring *seal.Keyring
	audit   *audit.Log

	// skew is how many steps of 30 s a TOTP code may be early or late.
	skew atomic.Int32
}

// New returns the service of a store. If keyring is nil, TOTP cannot be set up or used.
func New(store *storage.Store, keyring *seal.Keyring, log *audit.Log) *Service {
	s := &Service{store: store, keyring: keyring, audit: log}
	s.skew.Store(defaultSkew)
	return s
}

// Holder is a user with the session or access token of the request.
type Holder struct {
	UserID     string
	UserName   string
	Credential string // the id of the session or access token
	Address    string // the address of the client, for events
}

func (h Holder) event(action, detail string) *audit.Event {
	return &audit.Event{Actor: h.UserID, Action: action, User: h.UserID, Detail: detail, Address: h.Address}
}

// Effect is a function that an operation runs in its transaction. If it fails, the operation has
// no effect.
type Effect func(storage.Txn) error

// Factors are the second factors of a user.
type Factors struct {
	TOTP        bool      `json:"totp"`
	BackupCodes int       `json:"backup_codes"` // the number of unused codes
	Passkeys    []Passkey `json:"passkeys"`     // oldest first
}

// The names of the factors in verification and log-in.
const (
	MethodCode    = "2fa"     // a TOTP code, or a backup code instead
	MethodPasskey = "passkey" // an answer of a passkey
)

// commonRecord has the data that all factors of a user share.
type commonRecord struct {
	UserID string `json:"user_id"`

	// Handle is the user handle of WebAuthn: 64 random bytes, because passkeys keep it and show
	// it to their holder (WebAuthn section 14.6.1).
	Handle []byte `json:"handle,omitempty"`

	// Epoch is in every step-up, passkey assertion and ceremony of the user. Writing a higher one
	// ends all of them.
	Epoch int64 `json:"epoch,omitempty"`
}

var commonTable = table.Table[commonRecord]{Name: "factor", Key: func(f *commonRecord) table.Key { return table.Key{f.UserID} }}

// epochOf returns the epoch of a user's factors.
func epochOf(r storage.Reader, userID string) (int64, error) {
	record, err := commonTable.GetOrZero(r, userID)
	if err != nil {
		return 0, err
	}
	return record.Epoch, nil
}

// Of returns the factors of a user.
func Of(r storage.Reader, userID string) (has Factors, err error) {
	totp, err := TOTPTable.GetOrZero(r, userID)
	if err != nil {
		return has, err
	}
	codes, err := backupTable.GetOrZero(r, userID)
	if err != nil {
		return has, err
	}
	has = Factors{TOTP: totp.Seed != nil, BackupCodes: codes.Left, Passkeys: []Passkey{}}
	passkeys, err := passkeysOf(r, userID)
	for _, passkey := range passkeys {
		has.Passkeys = append(has.Passkeys, passkey.Passkey)
	}
	return has, err
}

// Due returns the names of the factors of a user, one of which must follow the password. It returns
// nil if there is none.
func Due(r storage.Reader, userID string) ([]string, error) {
	var due []string
	totp, err := TOTPTable.GetOrZero(r, userID)
	if err != nil {
		return nil, err
	}
	if totp.Seed != nil {
		due = append(due, MethodCode)
	}
	for _, err := range PasskeyTable.PrimaryKeys(r, PasskeyTable.Under(userID)) {
		if err != nil {
			return nil, err
		}
		return append(due, MethodPasskey), nil
	}
	return due, nil
}

// mayAdd checks in the transaction that adds a factor whether it may be added. An enrolment that
// began as the first factor fails if the user has set up another since. Any other enrolment needs
// a step-up in force.
func (s *Service) mayAdd(r storage.Reader, h Holder, first bool) error {
	if first {
		return onlyFactor(r, h.UserID)
	}
	return s.Fresh(r, h)
}

// changed ends the step-ups of a user whose factors change, in the transaction of the change, and runs
// effect. It returns the event of the change.
func (h Holder) changed(t storage.Txn, action, detail string, effect Effect) (*audit.Event, error) {
	if err := EndStepUps(t, h.UserID); err != nil {
		return nil, err
	}
	return h.event(action, detail), effect(t)
}

// onlyFactor returns an error if the user has a factor. Enrolments that began without one call it.
func onlyFactor(r storage.Reader, userID string) error {
	due, err := Due(r, userID)
	if err == nil && due != nil {
		err = fault.New(fault.VerificationRequired,
			"this began as the first factor, and another was set up since: verify by %s, and begin again", methods(due))
	}
	return err
}

// SealFault maps an error of the master key to INTERNAL, and an error of the store as
// [fault.OfStore] does.
func SealFault(err error) error {
	if slices.ContainsFunc([]error{seal.ErrNoKey, seal.ErrInvalidEnvelope, seal.ErrWrongKey}, func(of error) bool { return errors.Is(err, of) }) {
		return fmt.Errorf("%w: %w", fault.New(fault.Internal, "the sealed secrets of this account cannot be read: the master key is missing or is another one"), err)
	}
	if errors.Is(err, seal.ErrOtherNodes) {
		return fmt.Errorf("%w: %w", fault.New(fault.Conflict, "the gateways of the store have different master keys: each must have the newest one before it is used"), err)
	}
	return fault.OfStore(err)
}

// Sealed returns the tables whose records hold sealed secrets.
func Sealed() []reseal.Table {
	return []reseal.Table{
		reseal.Of(&TOTPTable, func(r *TOTP) []reseal.Field {
			return []reseal.Field{{Purpose: totpPurpose, At: &r.Seed}, {Purpose: totpPurpose, At: &r.Pending}}
		}),
		reseal.Of(&backupTable, func(r *backupRecord) []reseal.Field { return []reseal.Field{{Purpose: backupPurpose, At: &r.Sealed}} }),
	}
}

// Reset removes TOTP, backup codes and passkeys of a user who has lost them, with the failures that
// were counted and all step-ups.
func Reset(t storage.Txn, userID string) error {
	passkeys, err := passkeysOf(t, userID)
	if err != nil {
		return err
	}
	for _, passkey := range passkeys {
		if err := PasskeyTable.Put(t, passkey, nil); err != nil {
			return err
		}
	}
	return errors.Join(TOTPTable.Delete(t, userID), backupTable.Delete(t, userID), ResetFailures(t, userID), EndStepUps(t, userID))
}

// The guards of codes. They count per user, over all sessions. Backup codes have their own, so that
// a user whose TOTP is paused or blocked can use one.
var (
	totpGuard   = attempts.Guard{What: "totp", Pause: 5, Wait: failurePause, Block: 100}
	backupGuard = attempts.Guard{What: "backup_code", Pause: 5, Wait: failurePause, Block: 100}
)

// ResetFailures deletes the failures of a user that the guards of codes have counted.
func ResetFailures(t storage.Txn, userID string) error {
	return errors.Join(totpGuard.Reset(t, userID), backupGuard.Reset(t, userID))
}

// ensureHandle draws the user handle of a user if there is none.
func (s *Service) ensureHandle(ctx context.Context, userID string) error {
	drawn := make([]byte, 64)
	_, _ = rand.Read(drawn) // never fails: it ends the process instead
	return fault.OfStore(s.store.Update(ctx, func(t storage.Txn) error {
		record, err := commonTable.GetOrZero(t, userID)
		if err != nil || record.Handle != nil {
			return err
		}
		record.UserID, record.Handle = userID, drawn
		return commonTable.Put(t, nil, record)
	}))
}
