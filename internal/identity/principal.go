package identity

import (
	"net/netip"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
)

// Principal is who calls, as one key of one user. It never changes; a change
// of the records makes a new one.
type Principal struct {
	UserID   string
	UserName string
	KeyID    string
	KeyName  string

	// What this key may take, and what the user may with all keys together.
	KeyLimits  Limits
	UserLimits Limits

	models catalog.Patterns
	ranges []netip.Prefix
}

// MayUse tells whether the key's scope takes in model.
func (p *Principal) MayUse(model string) bool {
	return len(p.models) == 0 || p.models.Match(model)
}

// MayCallFrom tells whether the key may be used from addr. A key without
// ranges may be used from anywhere; one with ranges is refused where the
// address is not known.
func (p *Principal) MayCallFrom(addr netip.Addr) bool {
	if len(p.ranges) == 0 {
		return true
	}
	addr = addr.Unmap().WithZone("")
	for _, r := range p.ranges {
		if r.Contains(addr) {
			return true
		}
	}
	return false
}

// inForce returns the hashes by which a key may be used, now or until a time.
func (k keyRecord) inForce(user User) map[Hash]credential[Principal] {
	if user.Disabled || k.Revoked != 0 {
		return nil
	}
	principal := &Principal{
		UserID: user.ID, UserName: user.Name,
		KeyID: k.ID, KeyName: k.Name,
		KeyLimits: k.Limits, UserLimits: user.Limits,
		models: k.Models, ranges: k.Ranges,
	}
	fresh := map[Hash]credential[Principal]{Hash(k.Hash): {principal, unixTime(k.Expires)}}
	if k.Previous != nil {
		until := k.PreviousUntil
		if k.Expires != 0 {
			until = min(until, k.Expires)
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
