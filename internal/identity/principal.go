package identity

import (
	"net/netip"
	"slices"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
)

// Principal is the caller of a model: one key of one user. It is immutable; a change of the records
// creates a new one.
type Principal struct {
	UserID   string
	UserName string
	KeyID    string
	KeyName  string

	// The limits of this key by its owner and by the operator, and the operator's limits of the
	// user over all keys.
	OwnerLimits    Limits
	OperatorLimits Limits
	UserLimits     Limits

	owner, operator Scope // of the key
}

// MayUse reports whether the key may be used for a model, by its owner and by the
// operator.
func (p *Principal) MayUse(model string) bool {
	return p.owner.allowsModel(model) && p.operator.allowsModel(model)
}

// anyModel allows every model, like a scope without models. It also allows names that the * of a
// longer pattern does not match.
const anyModel = "*"

func (s *Scope) allowsModel(model string) bool {
	return len(s.Models) == 0 || slices.Contains(s.Models, anyModel) || s.Models.Match(model)
}

// MayCallFrom reports whether the key may be used from addr, by its owner and by the
// operator. A key without ranges may be used from anywhere. A key with ranges is refused
// if the address is not known.
func (p *Principal) MayCallFrom(addr netip.Addr) bool {
	return p.owner.allowsAddress(addr) && p.operator.allowsAddress(addr)
}

func (s *Scope) allowsAddress(addr netip.Addr) bool {
	if len(s.Ranges) == 0 {
		return true
	}
	addr = addr.Unmap().WithZone("")
	for _, r := range s.Ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// inForce returns the hashes of the key's secrets that are in force, now or until a time.
func (k *keyRecord) inForce(user *userRecord) credential.Entries[Principal] {
	if user.Disabled || k.Revoked != 0 {
		return nil
	}
	principal := &Principal{
		UserID: user.ID, UserName: user.Name,
		KeyID: k.ID, KeyName: k.Name,
		OwnerLimits: k.Limits, OperatorLimits: k.Operator.Limits, UserLimits: user.Limits,
		owner: k.Scope, operator: k.Operator,
	}
	expires := k.ExpiresAt()
	fresh := credential.Entries[Principal]{k.Hash: {Holder: principal, Until: expires}}
	if k.Previous != (credential.Hash{}) {
		until := k.PreviousUntil
		if expires != 0 {
			until = min(until, expires)
		}
		fresh[k.Previous] = credential.Entry[Principal]{Holder: principal, Until: until}
	}
	return fresh
}

// Account is an authenticated user of the console, with the credential of the request. It is
// immutable; a change of the records creates a new one.
type Account struct {
	UserID   string
	UserName string
	Role     Role // of the user

	// Credential is the id of the session (ses_…) or of the access token (tok_…) of the request.
	// A step-up is granted to the credential and ends with it.
	Credential string

	// Session is false for an access token.
	Session bool

	// Opened is when the session was opened by a log-in, in Unix seconds; zero for an access
	// token.
	Opened int64

	// Address is the address of the client, as text; empty if it is not known. Events record it.
	Address string

	// HalfOpen means that the password was right and a second factor is due. Such a session can
	// only send that factor or log out.
	HalfOpen bool

	// secret is the hash of the session's secret in the request. If the secret was replaced
	// since, the account is refused. Thus a thief of the old secret can neither get the new one
	// nor use a later proof.
	secret credential.Hash
}

// event returns the event of a change of the user's own account.
func (a *Account) event(action, detail string) *audit.Event {
	return &audit.Event{Actor: a.UserID, Action: action, User: a.UserID, Detail: detail, Address: a.Address}
}

// Device is the client that opened a session.
type Device struct {
	Address netip.Addr // the zero Addr if it is not known
	Agent   string     // the User-Agent header
}
