package identity

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/attempts"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/storage"
)

// LoginLimits bound how often a password or an operator's code may be tried. Every attempt counts,
// before any look-up and before a hash is computed. Unknown names count in the same way as known
// ones.
type LoginLimits struct {
	// PerUser is how many attempts to log in by one user name are allowed in 15 minutes. A log-in
	// without a due factor resets the count. Open sessions and log-ins by passkey
	// do not depend on it. Default: 10.
	PerUser int

	// PerAddress is how many attempts are allowed in an hour from one address. Of IPv6 it is one
	// /64, which one customer of a provider has. A log-in with the right password returns only its
	// own attempt. Thus many users may share an address, and the owner of an account cannot guess
	// more passwords. Only the first 100 log-ins of a user in an hour return it. Default: 100.
	PerAddress int
}

// MaxLoginLimit bounds both limits, because the store has the time of each attempt.
const MaxLoginLimit = 1000

const (
	userWindow    = 15 * time.Minute
	addressWindow = time.Hour

	// maxPasswordAttempts is how often an authenticated user may send the password in a userWindow,
	// right or wrong. Each attempt costs a hash, and few hashes run at once. The counter is separate from
	// that of log-ins, so that only the user can exhaust it.
	maxPasswordAttempts = 20

	// maxReturned is how many log-ins of a user in an addressWindow return their attempt to the
	// address. Without a bound, the owner of an account could keep the hasher and the audit busy.
	maxReturned = 100
)

var (
	passwordAttempts = attempts.Limit{What: "password", Most: maxPasswordAttempts, Per: userWindow}

	// returnedLogins counts the log-ins whose attempt is returned to the address.
	returnedLogins = attempts.Limit{What: "login_returned", Most: maxReturned, Per: addressWindow}
)

// fromAddress returns an attempt from an address.
func (l LoginLimits) fromAddress(from Device) attempts.Attempt {
	limit := attempts.Limit{What: "login_address", Most: min(cmp.Or(max(l.PerAddress, 0), 100), MaxLoginLimit), Per: addressWindow}
	return limit.Of(networkOf(from.Address))
}

// networkOf returns the network that a provider assigns to one customer: an IPv4 address, or an IPv6 /64.
func networkOf(addr netip.Addr) string {
	if addr = addr.Unmap().WithZone(""); addr.Is6() {
		return netip.PrefixFrom(addr, 64).Masked().String()
	}
	return addr.String()
}

// byName returns an attempt to log in by a name. Its subject is the unique form of the name, or the
// text itself if it is not a valid name.
func (l LoginLimits) byName(name string) attempts.Attempt {
	if folded, refusal := foldName(name); refusal == nil {
		name = folded
	}
	limit := attempts.Limit{What: "login_name", Most: min(cmp.Or(max(l.PerUser, 0), 10), MaxLoginLimit), Per: userWindow}
	return limit.Of(name)
}

// countAttempts is [attempts.Count] in a separate transaction. It returns the time for
// [attempts.Attempt.Return].
func (d *Directory) countAttempts(ctx context.Context, of ...attempts.Attempt) (at time.Time, err error) {
	at = d.store.Now()
	return at, fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error { return attempts.Count(t, at, of...) }))
}

// LockedUntil returns until when log-ins by password with a name are refused, because of too many
// attempts; zero: they are not.
func (d *Directory) LockedUntil(ctx context.Context, name string, limits LoginLimits) (time.Time, error) {
	return view(ctx, d, func(r storage.Reader) (time.Time, error) { return limits.byName(name).Next(r, d.store.Now()) })
}

// Unblock deletes the counts of attempts and failures that make a user wait. These are the counts
// of TOTP and backup codes, of the password by name and by session, and of the user's changes of
// today. The counts of addresses stay. The user has to prove the same factors as before.
func (d *Directory) Unblock(ctx context.Context, actor, idOrName string) error {
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := findUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		if err := factor.ResetFailures(t, user.ID); err != nil {
			return nil, err
		}
		for _, a := range []attempts.Attempt{LoginLimits{}.byName(user.Name), passwordAttempts.Of(user.ID)} {
			if err := a.Reset(t); err != nil {
				return nil, err
			}
		}
		return &audit.Event{Actor: actor, Action: "user.unblock", User: user.ID}, audit.ResetOwnChanges(t, user.ID)
	})
}
