package identity

import (
	"context"
	"net/netip"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Pace is how often one may come with a password or an operator's code. Every
// attempt counts, before anything is looked up and before a hash is computed,
// and an unknown name counts as a known one does.
type Pace struct {
	// PerUser is how many attempts to log in by one user name are allowed in 15
	// minutes. A log-in that leaves no factor due forgets those before it. Whoever
	// is logged in stays so, and a passkey is not asked for a name. Default: 10.
	PerUser int

	// PerAddress is how many attempts are allowed in an hour from one address,
	// or from one /64 of IPv6, which is what one customer gets. Default: 100.
	PerAddress int
}

// MaxPace bounds both limits: the times of all attempts that count are kept.
const MaxPace = 1000

const (
	userWindow    = 15 * time.Minute
	addressWindow = time.Hour

	// provePace bounds how often somebody who is logged in may give his password
	// in a userWindow, right or wrong: each time costs a hash, of which there are
	// few at once for everybody. It is a counter of its own: only he can fill it.
	provePace = 20

	// markPace bounds how often a session or a token may ask in a userWindow for
	// the mark of a passkey that has not answered: nobody may lie in wait for one
	// without end. Each answer of a passkey begins the count anew.
	markPace = 20
)

func (p Pace) ofName() rate { return rate{"login_name", paceOr(p.PerUser, 10), userWindow} }
func (p Pace) ofAddress() rate {
	return rate{"login_address", paceOr(p.PerAddress, 100), addressWindow}
}

var (
	ofProof = rate{"password", provePace, userWindow}
	ofMark  = rate{"mark", markPace, userWindow}
)

func paceOr(n, byDefault int) int {
	if n <= 0 {
		n = byDefault
	}
	return min(n, MaxPace)
}

// attempt is an attempt of somebody, counted by a rate.
type attempt struct {
	rate
	whom string
}

// countAttempts counts an attempt by all of its rates, or by none if one of them
// refuses it: what is refused must not prolong another's wait.
func (d *Directory) countAttempts(ctx context.Context, attempts ...attempt) error {
	return fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error {
		now := d.store.Now()
		records := make([]*attemptRecord, len(attempts))
		for i, a := range attempts {
			var err error
			if records[i], err = a.admit(t, now, a.whom); err != nil {
				return err
			}
		}
		for i, a := range attempts {
			if err := a.count(t, now, a.whom, records[i]); err != nil {
				return err
			}
		}
		return nil
	}))
}

// Unblock forgets what a user has to wait for: the failures by which TOTP and
// backup codes are paused or blocked, the attempts at his password, by his name
// and by his sessions, and the count of his changes of today. What an address has
// tried stays. He proves who he is as before.
func (d *Directory) Unblock(ctx context.Context, actor, idOrName string) error {
	return fault.OfStore(d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := FindUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		for _, g := range []guard{totpGuard, backupGuard} {
			if err := g.forgive(t, user.ID); err != nil {
				return nil, err
			}
		}
		for _, a := range []attempt{Pace{}.byName(user.Name), {ofProof, user.ID}} {
			if err := a.forgive(t, a.whom); err != nil {
				return nil, err
			}
		}
		return &audit.Event{Actor: actor, Action: "user.unblock", User: user.ID}, audit.Forgive(t, user.ID)
	}))
}

// fromAddress counts an attempt by the address it comes from.
func (p Pace) fromAddress(from Device) attempt { return attempt{p.ofAddress(), from.network()} }

// byName counts an attempt to log in by the name that was given, in the form in
// which names are unique; by the text itself where it is none.
func (p Pace) byName(name string) attempt {
	if folded, refusal := foldName(name); refusal == nil {
		name = folded
	}
	return attempt{p.ofName(), name}
}

// network is what one customer of a provider has: an IPv4 address, or a /64.
func (d Device) network() string {
	addr := d.Address.Unmap().WithZone("")
	if !addr.Is6() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}
