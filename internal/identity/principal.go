package identity

import (
	"net/netip"
	"slices"
	"time"
)

// Principal is who calls, as one key of one user. It never changes; a change
// of the records makes a new one.
type Principal struct {
	UserID   string
	UserName string
	KeyID    string
	KeyName  string

	// What this key may take, by its owner and by the operator, and what the user may
	// with all keys together, by the operator.
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

// anyModel allows every model, also names that the * of a longer pattern does not stand
// for: as a scope without models does.
const anyModel = "*"

func (s *Scope) allowsModel(model string) bool {
	return len(s.Models) == 0 || slices.Contains(s.Models, anyModel) || s.Models.Match(model)
}

// MayCallFrom reports whether the key may be used from addr, by its owner and by the
// operator. A key without ranges may be used from anywhere; one with ranges is refused
// where the address is not known.
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

// inForce returns the hashes by which a key may be used, now or until a time.
func (k *keyRecord) inForce(user *userRecord) map[Hash]credential[Principal] {
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
	fresh := map[Hash]credential[Principal]{Hash(k.Hash): {principal, unixTime(expires)}}
	if k.Previous != nil {
		until := k.PreviousUntil
		if expires != 0 {
			until = min(until, expires)
		}
		fresh[Hash(k.Previous)] = credential[Principal]{principal, unixTime(until)}
	}
	return fresh
}

// unixTime is time.Unix, but zero for zero.
func unixTime(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
