package identity

import (
	"context"
	"net/netip"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/mail"
	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Profile is a change of the profile of a user. Fields that are nil stay.
type Profile struct {
	// DisplayName has up to 64 printable characters. Empty: the user name is shown.
	DisplayName *string `json:"display_name,omitempty"`

	// Email is the address to which mails go once it is confirmed. Empty: none.
	Email *string `json:"email,omitempty"`

	// BalanceNotice is the balance below which the user gets a mail. Zero: none.
	BalanceNotice *money.Amount `json:"balance_notice,omitempty"`

	// Language is the language of mails to Email.
	Language string `json:"-"`
}

const maxDisplayName = 64

// check returns the fault of a profile that is not allowed.
func (p *Profile) check() *fault.Fault {
	if p.DisplayName != nil {
		name := strings.TrimSpace(*p.DisplayName)
		n := utf8.RuneCountInString(name)
		if n > maxDisplayName || !visible(name) {
			return fault.At(fault.InvalidParameter, "display_name",
				"a display name has at most %d visible characters, this has %d", maxDisplayName, n)
		}
		p.DisplayName = &name
	}
	if p.Email != nil {
		address := strings.TrimSpace(*p.Email)
		if address != "" && !mail.CheckAddress(address) {
			return fault.At(fault.InvalidParameter, "email", "an e-mail address has the form name@example.com, in ASCII and without spaces")
		}
		p.Email = &address
	}
	if p.BalanceNotice != nil && *p.BalanceNotice < 0 {
		return fault.At(fault.InvalidParameter, "balance_notice", "balance_notice is negative; allowed: an amount, or 0 for no mails")
	}
	return nil
}

// EmailChange has the recipients of the mails about a changed profile.
type EmailChange struct {
	Confirm *Recipient // at the new address, which Code confirms; nil: there is nothing to confirm
	Code    Secret
	Earlier *Recipient // at the address that was removed; nil: none was
}

// ChangeProfile changes the profile of the account's user. Setting the current value is not a
// change. A new address is in force once [Directory.ConfirmEmail] gets the code of the EmailChange;
// until then the earlier address stays.
func (d *Directory) ChangeProfile(ctx context.Context, a *Account, p Profile) (EmailChange, error) {
	if err := refuseHalfOpen(a); err != nil {
		return EmailChange{}, err
	}
	if refusal := p.check(); refusal != nil {
		return EmailChange{}, refusal
	}
	code := credential.DrawOneTime()
	var mails EmailChange
	_, err := d.changeAccess(ctx, a.UserID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		mails = EmailChange{}
		if _, _, err := d.own(t, a); err != nil {
			return nil, err
		}
		before := *user
		replace(&user.DisplayName, p.DisplayName)
		if replace(&user.BalanceNotice, p.BalanceNotice); user.BalanceNotice != before.BalanceNotice {
			user.Mail.Low = false
		}
		event := a.event("profile.change", user.DisplayName)
		if p.Email != nil && *p.Email != user.Email {
			event = a.event("email.set", "")
			if *p.Email == "" {
				earlier := user.recipient()
				mails.Earlier = &earlier
				user.Email, user.Mail = "", mailState{}
				event = a.event("email.remove", "")
			}
		}
		if p.Email != nil {
			user.Mail.Pending = pendingEmail{}
			if *p.Email != user.Email {
				now := d.store.Now()
				from, _ := netip.ParseAddr(a.Address)
				if err := attempts.Count(t, now, confirmationsOf.Of(user.ID), confirmationsTo.Of(mailbox(*p.Email)), confirmationsFrom.Of(networkOf(from))); err != nil {
					return nil, err
				}
				hash := credential.HashOneTime(emailPurpose, code.Reveal())
				user.Mail.Pending = pendingEmail{*p.Email, p.Language, hash, now.Add(MailCodeLife).Unix()}
				mails.Confirm, mails.Code = &Recipient{user.ID, user.Name, *p.Email, p.Language}, code
			}
		}
		if user.User == before.User && user.Mail == before.Mail {
			return nil, nil
		}
		return event, nil
	})
	if err != nil {
		return EmailChange{}, err
	}
	return mails, nil
}

// emailPurpose is the purpose of the codes that confirm addresses.
const emailPurpose = "email"

// Mails with a code for an address are limited. Otherwise a user could fill the mailbox of another
// person, or send mails to many persons by many accounts. The limits are for a user, a mailbox, and a
// network, which many users may share.
var (
	confirmationsOf   = attempts.Limit{What: "mail_confirm", Most: 5, Per: 24 * time.Hour}
	confirmationsTo   = attempts.Limit{What: "mail_confirm_to", Most: 5, Per: 24 * time.Hour}
	confirmationsFrom = attempts.Limit{What: "mail_confirm_from", Most: 30, Per: 24 * time.Hour}
)

// mailbox returns the same text for all addresses of one mailbox: lower case, without a tag. Most mail
// servers deliver user+tag@example.com to user@example.com.
func mailbox(address string) string {
	user, host, _ := strings.Cut(strings.ToLower(address), "@")
	user, _, _ = strings.Cut(user, "+")
	return user + "@" + host
}

// ConfirmEmail puts the pending address of the account's user in force, by the code that was mailed to
// it. It returns the recipient at the earlier address, or nil if there was none.
func (d *Directory) ConfirmEmail(ctx context.Context, a *Account, code string) (earlier *Recipient, err error) {
	hash := credential.HashOneTime(emailPurpose, code)
	_, err = d.changeAccess(ctx, a.UserID, func(t storage.Txn, user *userRecord) (*audit.Event, error) {
		earlier = nil
		if _, _, err := d.own(t, a); err != nil {
			return nil, err
		}
		pending := user.Mail.Pending
		if pending.Address == "" || pending.Hash != hash || d.store.Now().Unix() >= pending.Expires {
			return nil, fault.At(fault.VerificationFailed, "code", "this code is wrong, was used or replaced, or has expired")
		}
		if user.Email != "" {
			before := user.recipient()
			earlier = &before
		}
		// A code that went to the earlier address must not reset the password.
		user.Email, user.Mail = pending.Address, mailState{Language: pending.Language}
		return a.event("email.confirm", ""), nil
	})
	if err != nil {
		return nil, err
	}
	return earlier, nil
}
