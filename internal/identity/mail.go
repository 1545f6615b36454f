package identity

import (
	"context"
	"slices"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// mailState is the part of a user record about mails, apart from the confirmed address.
type mailState struct {
	Language string       `json:"language,omitempty"` // of mails to the confirmed address
	Pending  pendingEmail `json:"pending,omitzero"`

	// ResetHash is the hash of the latest mailed code for a new password. Zero: none was mailed.
	ResetHash credential.Hash `json:"reset_hash,omitzero"`

	// Low means that a mail about the balance was sent, and the balance has not reached the amount
	// since. LowSent is the time of the last such mail.
	Low     bool  `json:"low,omitempty"`
	LowSent int64 `json:"low_sent,omitempty"` // Unix seconds
}

// pendingEmail is an address that is not confirmed yet.
type pendingEmail struct {
	Address  string          `json:"address"`
	Language string          `json:"language"`
	Hash     credential.Hash `json:"hash"`    // of the code
	Expires  int64           `json:"expires"` // of the code, in Unix seconds
}

// Recipient is a user who gets a mail.
type Recipient struct {
	UserID, UserName  string
	Address, Language string
}

func (u *userRecord) recipient() Recipient {
	return Recipient{u.ID, u.Name, u.Email, u.Mail.Language}
}

// PendingEmail returns the address that a user has not confirmed yet, or "" if there is none or its
// code has expired.
func (d *Directory) PendingEmail(ctx context.Context, userID string) (string, error) {
	return view(ctx, d, func(r storage.Reader) (string, error) {
		user, err := mustGet(r, &userTable, userID)
		if err != nil || d.store.Now().Unix() >= user.Mail.Pending.Expires {
			return "", err
		}
		return user.Mail.Pending.Address, nil
	})
}

// MailCodeLife is how long a mailed code is valid.
const MailCodeLife = 30 * time.Minute

// resetMails limits the mails with a code for a new password: others must not fill the mailbox of a user.
var (
	resetMails      = attempts.Limit{What: "mail_reset", Most: 1, Per: 5 * time.Minute}
	resetMailsOfDay = attempts.Limit{What: "mail_reset_day", Most: 5, Per: 24 * time.Hour}
)

// ForgotPassword calls send with a one-time code for a new password. It does so only if a user of this
// name has a confirmed address and resetMails allows a mail. It returns before that is known, so that
// neither the answer nor its time reveals whether the user exists. send must not block. The attempt
// counts for the log-in limit of the address, and not for that of the name. A code from an operator
// stays valid.
func (d *Directory) ForgotPassword(ctx context.Context, name string, from Device, limits LoginLimits, send func(Recipient, Secret)) error {
	if _, err := d.countAttempts(ctx, limits.fromAddress(from)); err != nil {
		return err
	}
	code := credential.DrawOneTime()
	hash := credential.HashOneTime(resetPurpose, code.Reveal())
	var to *Recipient
	event := audit.Event{Actor: attempts.Unknown, Action: "password.forgot", Address: from.address()}
	ctx = context.WithoutCancel(ctx)
	return fault.OfStore(d.store.Post(ctx, func(t storage.Txn) error {
		to = nil
		folded, refusal := foldName(name)
		if refusal != nil {
			return nil
		}
		before, err := userTable.Find(t, &userNames, folded)
		if err != nil || before == nil || before.Disabled || before.Email == "" {
			return err
		}
		user, now := *before, d.store.Now()
		if err := attempts.Count(t, now, resetMails.Of(user.ID), resetMailsOfDay.Of(user.ID)); err != nil {
			if attempts.Refused(err) {
				return nil
			}
			return err
		}
		user.Mail.ResetHash = hash
		if err := userTable.Put(t, before, &user); err != nil {
			return err
		}
		if err := resetTable.Put(t, nil, &resetRecord{Hash: hash, UserID: user.ID, Expires: now.Add(MailCodeLife).Unix()}); err != nil {
			return err
		}
		recipient := user.recipient()
		to, event.User = &recipient, user.ID
		return audit.Record(ctx, t, now, &event)
	}, func(err error) {
		if err == nil && to != nil {
			d.Audit.OnAudit(event)
			send(*to, code)
		}
	}))
}

// deviceRecord lists the devices from which a user has logged in.
type deviceRecord struct {
	UserID string        `json:"user_id"`
	Known  []knownDevice `json:"known"` // the most recently used first
}

type knownDevice struct {
	Hash credential.Hash `json:"hash"` // of the secret in its cookie
}

// maxDevices is the maximum number of recorded devices of a user. A further device replaces the least
// recently used one.
const maxDevices = 20

// loginMails limits the mails about log-ins from new devices.
var loginMails = attempts.Limit{What: "mail_login", Most: 10, Per: 24 * time.Hour}

// NoteDevice records the device of a session that has logged in, and returns the secret for its
// cookie. If secret, which the device sent, has the form of one, it is kept. If the device is new,
// NoteDevice calls send, unless send is nil, the user has no address, or loginMails allows no mail. It
// does not wait until the record is written. send must not block.
//
// The secret authorizes nothing, so a device may send its own: several users of one device share one
// secret.
func (d *Directory) NoteDevice(ctx context.Context, userID, secret string, send func(Recipient)) (Secret, error) {
	kept := Secret(secret)
	hash, ok := credential.HashPlain(secret)
	if !ok {
		kept = credential.DrawPlain()
		hash, _ = credential.HashPlain(kept.Reveal())
	}
	var to *Recipient
	return kept, fault.OfStore(d.store.Post(context.WithoutCancel(ctx), func(t storage.Txn) error {
		to = nil
		have, err := deviceTable.GetOrZero(t, userID)
		if err != nil {
			return err
		}
		i := slices.Index(have.Known, knownDevice{hash})
		switch {
		case i == 0:
			return nil
		case i > 0:
			have.Known = slices.Delete(have.Known, i, i+1)
		case send != nil:
			if to, err = d.newDevice(t, userID); err != nil {
				return err
			}
		}
		have.UserID, have.Known = userID, slices.Insert(have.Known, 0, knownDevice{hash})
		have.Known = have.Known[:min(len(have.Known), maxDevices)]
		return deviceTable.Put(t, nil, have)
	}, func(err error) {
		if err == nil && to != nil {
			send(*to)
		}
	}))
}

// newDevice returns the recipient of the mail about a log-in from a new device, or nil if none is sent.
func (d *Directory) newDevice(t storage.Txn, userID string) (*Recipient, error) {
	user, err := mustGet(t, &userTable, userID)
	if err != nil || user.Email == "" {
		return nil, err
	}
	err = attempts.Count(t, d.store.Now(), loginMails.Of(userID))
	if attempts.Refused(err) {
		return nil, nil
	}
	to := user.recipient()
	return &to, err
}

// BalanceNotice is the balance below which a user gets a mail.
type BalanceNotice struct {
	UserID string
	Amount money.Amount
	state  mailState
}

// lowInterval is the minimum time between two mails about a low balance.
const lowInterval = 24 * time.Hour

// BalanceNotices returns the balances below which users get a mail.
func (d *Directory) BalanceNotices(ctx context.Context) ([]BalanceNotice, error) {
	return view(ctx, d, func(r storage.Reader) (all []BalanceNotice, err error) {
		for user, err := range userTable.Scan(r, userNotices.Under()) {
			if err != nil {
				return nil, err
			}
			all = append(all, BalanceNotice{user.ID, user.BalanceNotice, user.Mail})
		}
		return all, nil
	})
}

// after returns the state of the user's mails for a balance. It differs from the recorded state if a
// mail is due, or if the balance is no longer low.
func (n BalanceNotice) after(balance money.Amount, now time.Time) mailState {
	state := n.state
	switch low := balance < n.Amount; {
	case !low:
		state.Low = false
	case !state.Low && now.Unix() >= state.LowSent+int64(lowInterval/time.Second):
		state.Low, state.LowSent = true, now.Unix()
	}
	return state
}

// NoteBalance compares the balance of a user with a notice. It returns the recipient and records the
// mail as sent if three conditions hold: the balance is below the amount, it was not below since the
// last mail, and that mail is at least lowInterval old. Otherwise it returns nil.
func (d *Directory) NoteBalance(ctx context.Context, n BalanceNotice, balance money.Amount) (to *Recipient, err error) {
	if n.after(balance, d.store.Now()) == n.state {
		return nil, nil
	}
	err = d.store.Update(ctx, func(t storage.Txn) error {
		to = nil
		before, err := mustGet(t, &userTable, n.UserID)
		if err != nil || before.BalanceNotice != n.Amount || before.Mail != n.state {
			return err // the user has changed something meanwhile; the next sweep looks again
		}
		user := *before
		if user.Mail = n.after(balance, d.store.Now()); user.Mail.Low {
			recipient := user.recipient()
			to = &recipient
		}
		return userTable.Put(t, before, &user)
	})
	if err != nil {
		return nil, fault.OfStore(err)
	}
	return to, nil
}
