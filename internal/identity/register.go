package identity

import (
	"context"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Register makes a user who comes by himself, with a password. Whether that is
// open to everybody is the caller's to know. Each attempt counts as one to log
// in from its address.
func (d *Directory) Register(ctx context.Context, name, password string, from Device, pace Pace) (User, error) {
	folded, refusal := newPerson(name, password)
	if refusal != nil {
		return User{}, refusal
	}
	line, err := d.hasher.enterAnonymous()
	if err != nil {
		return User{}, err
	}
	defer line.leave()
	if err := d.countAttempts(ctx, pace.fromAddress(from)); err != nil {
		return User{}, err
	}
	err = d.store.View(ctx, func(r storage.Reader) error { return free(r, name, folded) })
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	user := userRecord{User: User{ID: newID(idClass), Name: name, Created: d.store.Now().Unix()}}
	if user.Password, err = line.hash(ctx, password); err != nil {
		return User{}, err
	}
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		event := &audit.Event{Actor: user.ID, Action: "user.register", User: user.ID, Detail: user.Name, Address: from.address()}
		return event, addUser(t, user, folded)
	})
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	return user.User, nil
}

// setupRecord is the one-time code of the first run.
type setupRecord struct {
	Hash    []byte `json:"hash"`
	Created int64  `json:"created"` // Unix seconds
}

// setupCode is the primary key of the one record of setupTable.
var setupCode = table.Key{"code"}

const setupPurpose = "setup"

// SetupCode returns a new one-time code by which the first administrator may be
// made, in place of the one before. There is none once he was made, or an
// operator has made a user; people who register by themselves do not end it. The
// code is shown to whoever can read the log, and to nobody else.
func (d *Directory) SetupCode(ctx context.Context) (Secret, error) {
	var code Secret
	err := d.store.Update(ctx, func(t storage.Txn) error {
		code = ""
		if due, err := setupDue(t); err != nil || !due {
			return err
		}
		code = drawCode()
		hash, _ := hashCode(setupPurpose, code.Reveal())
		return setupTable.Put(t, nil, &setupRecord{Hash: hash[:], Created: d.store.Now().Unix()})
	})
	if err != nil {
		return "", fault.OfStore(err)
	}
	return code, nil
}

// SetupDue tells whether the first administrator is still to be made.
func (d *Directory) SetupDue(ctx context.Context) (due bool, err error) {
	err = d.store.View(ctx, func(r storage.Reader) error {
		due, err = setupDue(r)
		return err
	})
	return due, fault.OfStore(err)
}

func setupDue(r storage.Reader) (bool, error) {
	has, err := setupTable.Has(r, setupCode...)
	if err != nil || has {
		return has, err
	}
	for _, err := range userTable.PrimaryKeys(r, userTable.Under()) {
		return false, err
	}
	return true, nil
}

// Setup makes the first user, an administrator, by the one-time code in the log.
// The code is used up in the transaction that makes him, so of two who come with
// it one is the first. What is wrong with a name or a password does not use it
// up.
func (d *Directory) Setup(ctx context.Context, code, name, password string) (User, error) {
	folded, refusal := newPerson(name, password)
	if refusal != nil {
		return User{}, refusal
	}
	hash, _ := hashCode(setupPurpose, code)
	err := d.store.View(ctx, func(r storage.Reader) error { return mayBeFirst(r, hash) })
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	line, err := d.hasher.enterAnonymous()
	if err != nil {
		return User{}, err
	}
	defer line.leave()
	user := userRecord{User: User{ID: newID(idClass), Name: name, Created: d.store.Now().Unix(), Admin: true}}
	if user.Password, err = line.hash(ctx, password); err != nil {
		return User{}, err
	}
	err = d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		if err := mayBeFirst(t, hash); err != nil {
			return nil, err
		}
		if err := setupTable.Delete(t, setupCode...); err != nil {
			return nil, err
		}
		return &audit.Event{Actor: user.ID, Action: "user.setup", User: user.ID, Detail: user.Name}, addUser(t, user, folded)
	})
	if err != nil {
		return User{}, fault.OfStore(err)
	}
	return user.User, nil
}

// mayBeFirst refuses a code that is not the one in force, or that comes too late.
func mayBeFirst(r storage.Reader, hash Hash) error {
	due, err := setupDue(r)
	if err != nil {
		return err
	}
	if !due {
		return fault.New(fault.Conflict, "the set-up is over; an operator makes further users")
	}
	record, err := setupTable.Get(r, setupCode...)
	if err == nil && (record == nil || string(record.Hash) != string(hash[:])) {
		err = fault.At(fault.VerificationFailed, "code", "this is not the one-time code in the server's log; each start writes a new one")
	}
	return err
}

// newName checks the name of a new user and returns the form by which it is
// unique. One that could be read as an id is refused, as a flag of a command, or as
// a step in a path: an operator could not name him.
func newName(name string) (string, *fault.Fault) {
	folded, refusal := foldName(name)
	switch {
	case refusal != nil:
	case strings.HasPrefix(folded, idClass+"_"):
		refusal = fault.At(fault.InvalidParameter, "name", "a user name does not begin with %s_, as ids do", idClass)
	case strings.HasPrefix(folded, "-") || folded == "." || folded == "..":
		refusal = fault.At(fault.InvalidParameter, "name", "a user name does not begin with -, and is neither . nor ..")
	}
	return folded, refusal
}

// newPerson checks the name and the password of a new user; see newName.
func newPerson(name, password string) (folded string, refusal *fault.Fault) {
	if folded, refusal = newName(name); refusal == nil {
		refusal = CheckPassword(name, password)
	}
	return folded, refusal
}

// free refuses a name that is taken, in any case.
func free(r storage.Reader, name, folded string) error {
	taken, err := userTable.Find(r, &userNames, folded)
	if err == nil && taken != nil {
		err = fault.At(fault.Conflict, "name", "the name %q is taken already", name)
	}
	return err
}

// addUser writes a new user.
func addUser(t storage.Txn, user userRecord, folded string) error {
	if err := free(t, user.Name, folded); err != nil {
		return err
	}
	return userTable.Put(t, nil, &user)
}
