package identity

import (
	"context"
	"errors"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// A stamp says that a person was verified a short while ago. It belongs to the
// session or access token that was used, never to the user: another session of
// his has to be verified itself.

// stampRecord is one stamp.
type stampRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Method     string `json:"method"`
	Expires    int64  `json:"expires"` // Unix seconds
}

// markRecord says that a passkey has answered for this
// credential. It is good for one verification.
type markRecord struct {
	Credential string `json:"credential"`
	UserID     string `json:"user_id"`
	Epoch      int64  `json:"epoch,omitempty"` // of the user's factors
	Passkey    string `json:"passkey"`         // which one; it must still be there
	Expires    int64  `json:"expires"`         // Unix seconds
}

const (
	// markLife is how long a passkey's answer waits for its verification.
	markLife = 60 * time.Second

	// stampKept is how long a stamp that has ended is kept: as long as that, its
	// owner is told that it has, rather than that there is none.
	stampKept = 24 * time.Hour
)

// Fresh lets pass who was verified a short while ago by the credential he
// comes with, and who has no factor to be verified by. Others are refused with
// VERIFICATION_REQUIRED or VERIFICATION_EXPIRED, and with NOT_LOGGED_IN whoever's
// credential has ended, or has another secret since: the one before earns nothing
// by what was proved with the next.
func (d *Directory) Fresh(ctx context.Context, a *Account) error {
	if err := whole(a); err != nil {
		return err
	}
	return fault.OfStore(d.store.View(ctx, func(r storage.Reader) error {
		if _, _, err := d.own(r, a); err != nil {
			return err
		}
		return d.fresh(r, a)
	}))
}

func (d *Directory) fresh(r storage.Reader, a *Account) error {
	due, err := factorsDue(r, a.UserID)
	if err != nil || due == nil {
		return err
	}
	epoch, err := factorEpoch(r, a.UserID)
	if err != nil {
		return err
	}
	stamp, err := stampTable.Get(r, a.Credential)
	switch {
	case err != nil:
		return err
	case stamp == nil || stamp.UserID != a.UserID || stamp.Epoch != epoch:
		return fault.New(fault.VerificationRequired, "this needs a verification first: by %s", either(due))
	case d.store.Now().Unix() >= stamp.Expires:
		return fault.New(fault.VerificationExpired, "the verification has expired; verify again by %s", either(due))
	}
	return nil
}

func either(methods []string) string {
	if len(methods) == 1 {
		return methods[0]
	}
	return methods[0] + " or " + methods[1]
}

// setStamp stamps the credential of an account until a time in Unix seconds.
func (d *Directory) setStamp(t storage.Txn, a *Account, method string, expires int64) error {
	epoch, err := factorEpoch(t, a.UserID)
	if err != nil {
		return err
	}
	return stampTable.Put(t, nil, &stampRecord{Credential: a.Credential, UserID: a.UserID, Epoch: epoch, Method: method, Expires: expires})
}

// setMark marks that a passkey has answered for the credential of an account, in
// a ceremony of this epoch. Whoever has asked for a mark in vain before is
// forgiven: none that is there is ever out of reach.
func (d *Directory) setMark(t storage.Txn, a *Account, epoch int64, passkeyID string) error {
	until := d.store.Now().Add(markLife)
	mark := markRecord{Credential: a.Credential, UserID: a.UserID, Epoch: epoch, Passkey: passkeyID, Expires: until.Unix()}
	if err := markTable.Put(t, nil, &mark); err != nil {
		return err
	}
	return ofMark.forgive(t, a.Credential)
}

// useMark takes the mark of a credential away, or refuses when there is none in
// force.
func (d *Directory) useMark(t storage.Txn, a *Account) error {
	due, err := factorsDue(t, a.UserID)
	if err != nil {
		return err
	}
	if due == nil {
		return fault.New(fault.NoFactor, "no second factor is set up for this account")
	}
	epoch, err := factorEpoch(t, a.UserID)
	if err != nil {
		return err
	}
	mark, err := markTable.GetOrZero(t, a.Credential)
	if err != nil {
		return err
	}
	there, err := passkeyTable.Has(t, a.UserID, mark.Passkey)
	switch {
	case err != nil:
		return err
	case mark.UserID != a.UserID, mark.Epoch != epoch, !there, d.store.Now().Unix() >= mark.Expires:
		return fault.New(fault.PasskeyNotCompleted, "no passkey has answered for this session within %s: begin and finish that first", inWords(markLife))
	}
	return markTable.Delete(t, a.Credential)
}

// dropStamp ends what a credential has proven, and what it was about to prove.
// Ids of credentials are never given twice, so this frees space: nobody comes
// by a stamp whose credential has ended.
func dropStamp(t storage.Txn, credentialID string) error {
	return errors.Join(stampTable.Delete(t, credentialID), markTable.Delete(t, credentialID),
		ceremonyTable.Delete(t, purposeRegister, credentialID), ceremonyTable.Delete(t, purposeVerify, credentialID))
}

// dropStamps ends what all credentials of a user have proven, and what they were about
// to prove. It belongs to every change of a factor or of the password: a step-up tells
// that the person had what was there before.
func dropStamps(t storage.Txn, userID string) error {
	factors, err := factorTable.GetOrZero(t, userID)
	if err != nil {
		return err
	}
	factors.UserID = userID
	factors.Epoch++
	return factorTable.Put(t, nil, factors)
}
