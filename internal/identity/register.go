package identity

import (
	"context"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Register creates a user with a password, for an unauthenticated client. The caller checks
// whether registration is open. An attempt counts as a log-in from the same address.
func (d *Directory) Register(ctx context.Context, name, password string, from Device, limits LoginLimits) (User, error) {
	folded, refusal := checkNewUser(name, password)
	if refusal != nil {
		return User{}, refusal
	}
	place, err := d.hasher.EnterAnonymous()
	if err != nil {
		return User{}, err
	}
	defer place.Leave()
	if _, err := d.countAttempts(ctx, limits.fromAddress(from)); err != nil {
		return User{}, err
	}
	err = d.store.View(ctx, func(r storage.Reader) error { return checkNameFree(r, name, folded) })
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	user := userRecord{User: User{ID: credential.NewID(idClass), Name: name, Created: d.store.Now().Unix()}}
	if user.Password, err = place.Hash(ctx, password); err != nil {
		return User{}, err
	}
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		event := &audit.Event{Actor: user.ID, Action: "user.register", User: user.ID, Detail: user.Name, Address: from.address()}
		return event, addUser(t, user, folded)
	})
	return user.User, err
}

// setupRecord has the one-time code of the first run, or records that it was used.
type setupRecord struct {
	Hash    credential.Hash `json:"hash"` // zero if it was used
	Used    bool            `json:"used,omitempty"`
	Created int64           `json:"created"`         // Unix seconds
	Epoch   int64           `json:"epoch,omitempty"` // of the node that has the code in its log
}

// setupCode is the primary key of the one record of setupTable.
var setupCode = table.Key{"code"}

const setupPurpose = "setup"

// SetupCode returns a new one-time code that creates the first administrator, and ends the
// earlier code. It returns no code if there is an administrator, or if another live node of a shared
// store has a code in its log. Users that an operator creates do not end the set-up. The code is
// written only to the log.
func (d *Directory) SetupCode(ctx context.Context) (Secret, error) {
	var code Secret
	err := d.store.Update(ctx, func(t storage.Txn) error {
		code = ""
		if due, err := setupDue(t); err != nil || !due {
			return err
		}
		if logged, err := d.setupLogged(t); err != nil || logged {
			return err
		}
		code = credential.DrawOneTime()
		hash := credential.HashOneTime(setupPurpose, code.Reveal())
		return setupTable.Put(t, nil, &setupRecord{Hash: hash, Created: d.store.Now().Unix(), Epoch: d.store.Epoch()})
	})
	return code, fault.OfStore(err)
}

// setupLogged reports whether another live node has the code in its log.
func (d *Directory) setupLogged(r storage.Reader) (bool, error) {
	if !d.store.Shared() {
		return false, nil
	}
	record, err := setupTable.GetOrZero(r, setupCode...)
	if err != nil || record.Hash == (credential.Hash{}) || record.Epoch == d.store.Epoch() {
		return false, err
	}
	ended, err := storage.HasEnded(r, record.Epoch)
	return !ended, err
}

// SetupDue reports whether there is no administrator yet.
func (d *Directory) SetupDue(ctx context.Context) (due bool, err error) {
	return view(ctx, d, setupDue)
}

func setupDue(r storage.Reader) (bool, error) {
	record, err := setupTable.Get(r, setupCode...)
	return err == nil && (record == nil || !record.Used), err
}

// Setup creates the first administrator by the one-time code in the log. The code is used
// up in the transaction that creates the user, so that only one of two concurrent calls succeeds.
// An invalid name or password does not use it up.
func (d *Directory) Setup(ctx context.Context, code, name, password string) (User, error) {
	folded, refusal := checkNewUser(name, password)
	if refusal != nil {
		return User{}, refusal
	}
	hash := credential.HashOneTime(setupPurpose, code)
	err := d.store.View(ctx, func(r storage.Reader) error { return checkSetupCode(r, hash) })
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	user := userRecord{User: User{ID: credential.NewID(idClass), Name: name, Created: d.store.Now().Unix(), Role: Admin}}
	if user.Password, err = d.hashNew(ctx, d.hasher.EnterAnonymous, password); err != nil {
		return User{}, err
	}
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := checkSetupCode(t, hash); err != nil {
			return nil, err
		}
		if err := setupTable.Put(t, nil, &setupRecord{Used: true, Created: user.Created}); err != nil {
			return nil, err
		}
		return &audit.Event{Actor: user.ID, Action: "user.setup", User: user.ID, Detail: user.Name}, addUser(t, user, folded)
	})
	return user.User, err
}

// checkSetupCode returns an error unless the code with this hash is in force.
func checkSetupCode(r storage.Reader, hash credential.Hash) error {
	due, err := setupDue(r)
	if err != nil {
		return err
	}
	if !due {
		return fault.New(fault.Conflict, "the set-up is complete; an operator creates further users")
	}
	record, err := setupTable.Get(r, setupCode...)
	if err == nil && (record == nil || record.Hash != hash) {
		err = fault.At(fault.VerificationFailed, "code", "this is not the one-time code in the server's log; each start writes a new one")
	}
	return err
}

// newName checks the name of a new user and returns the form by which it is unique. It refuses a
// name that commands could read as an id or a flag, and . and .., which change the path of a URL.
func newName(name string) (string, *fault.Fault) {
	folded, refusal := foldName(name)
	switch {
	case refusal != nil:
	case strings.HasPrefix(folded, idClass+"_"):
		refusal = fault.At(fault.InvalidParameter, "name", "a user name must not begin with %s_, which marks ids", idClass)
	case strings.HasPrefix(folded, "-") || folded == "." || folded == "..":
		refusal = fault.At(fault.InvalidParameter, "name", "a user name must not begin with - and must not be . or ..")
	}
	return folded, refusal
}

// checkNewUser checks the name and the password of a new user; see newName.
func checkNewUser(name, password string) (folded string, refusal *fault.Fault) {
	if folded, refusal = newName(name); refusal == nil {
		refusal = checkPassword(name, password)
	}
	return folded, refusal
}

// checkNameFree returns CONFLICT if a name is taken, in any case.
func checkNameFree(r storage.Reader, name, folded string) error {
	taken, err := userTable.Find(r, &userNames, folded)
	if err == nil && taken != nil {
		err = fault.At(fault.Conflict, "name", "the name %q is taken already", name)
	}
	return err
}

// addUser writes a new user.
func addUser(t storage.Txn, user userRecord, folded string) error {
	if err := checkNameFree(t, user.Name, folded); err != nil {
		return err
	}
	return userTable.Put(t, nil, &user)
}

// resetCodeLife is how long an operator's one-time code for a new password is in force.
const resetCodeLife = 24 * time.Hour

// resetRecord maps a code to its user. The user's record has the hashes of the codes in force: one of
// an operator, and one that was mailed. A new code ends the one of its kind, a new password both.
type resetRecord struct {
	Hash    credential.Hash `json:"hash"` // of the code
	UserID  string          `json:"user_id"`
	Expires int64           `json:"expires"` // Unix seconds
}

const resetPurpose = "reset"

// IssueResetCode returns a one-time code with which a user can set a new password, and ends the
// earlier code. The old password stays in force until then. For a disabled user, it returns CONFLICT.
func (d *Directory) IssueResetCode(ctx context.Context, actor, idOrName string) (Secret, error) {
	code := credential.DrawOneTime()
	hash := credential.HashOneTime(resetPurpose, code.Reveal())
	_, err := d.changeAccess(ctx, idOrName, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		if user.Disabled {
			return nil, fault.At(fault.Conflict, "user", "the user %q is disabled", user.Name)
		}
		user.ResetHash = hash
		reset := &resetRecord{Hash: hash, UserID: user.ID, Expires: d.store.Now().Add(resetCodeLife).Unix()}
		return &audit.Event{Actor: actor, Action: "password.reset_code", User: user.ID}, resetTable.Put(t, nil, reset)
	})
	return code, err
}

// ResetPassword replaces the password of the user of a one-time code, of an operator or in a mail. It ends the user's sessions
// and access token; the factors stay. The code is used up in the transaction that sets the
// password; an invalid password does not use it up. An attempt counts as a log-in from the
// same address.
//
// The code of an operator also removes the e-mail address: an attacker may have set it, and could
// otherwise get a mailed code. emailRemoved reports whether there was an address to remove.
func (d *Directory) ResetPassword(ctx context.Context, code, password string, from Device, limits LoginLimits) (emailRemoved bool, err error) {
	if refusal := checkPassword("", password); refusal != nil {
		return false, refusal
	}
	if code == "" {
		return false, fault.At(fault.MissingParameter, "code", "code is required: enter the code that an operator gave you, or the one in the mail")
	}
	place, err := d.hasher.EnterAnonymous()
	if err != nil {
		return false, err
	}
	defer place.Leave()
	if _, err := d.countAttempts(ctx, limits.fromAddress(from)); err != nil {
		return false, err
	}
	hash := credential.HashOneTime(resetPurpose, code)
	user, err := view(ctx, d, func(r storage.Reader) (*userRecord, error) { return d.resetting(r, hash) })
	if err != nil {
		return false, err
	}
	if refusal := checkPassword(user.Name, password); refusal != nil {
		return false, refusal
	}
	replacement, err := place.Hash(ctx, password)
	if err != nil {
		return false, err
	}
	_, err = d.changeAccess(ctx, user.ID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		emailRemoved = false
		if _, err := d.resetting(t, hash); err != nil {
			return nil, err
		}
		if err := resetTable.Delete(t, string(hash[:])); err != nil {
			return nil, err
		}
		event := &audit.Event{Actor: user.ID, Action: "password.reset", User: user.ID, Address: from.address()}
		if user.ResetHash == hash {
			if emailRemoved = user.Email != ""; emailRemoved {
				event.Detail = "e-mail address removed"
			}
			user.Email, user.Mail = "", mailState{}
		}
		user.setPassword(replacement)
		// The user has probably used up the attempts with the forgotten password.
		byName := limits.byName(user.Name)
		if err := byName.Reset(t); err != nil {
			return nil, err
		}
		_, err := endAccess(t, user, nil, d.store.Now())
		return event, err
	})
	return emailRemoved && err == nil, err
}

// resetting returns the user of a code in force. For every other code it returns the same error.
func (d *Directory) resetting(r storage.Reader, hash credential.Hash) (*userRecord, error) {
	refusal := fault.At(fault.VerificationFailed, "code", "this code is wrong, was used or replaced, or has expired")
	record, err := resetTable.Get(r, string(hash[:]))
	if err != nil {
		return nil, err
	}
	if record == nil {
		return nil, refusal
	}
	user, err := userTable.Get(r, record.UserID)
	if err != nil {
		return nil, err
	}
	if user == nil || user.Disabled || user.ResetHash != hash && user.Mail.ResetHash != hash || d.store.Now().Unix() >= record.Expires {
		return nil, refusal
	}
	return user, nil
}
