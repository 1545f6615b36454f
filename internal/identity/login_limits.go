package identity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// LoginLimits bound how often a password or an operator's code may be tried. Every attempt counts,
// before anything is looked up and before a hash is computed. An unknown name counts as a known
// one does.
type LoginLimits struct {
	// PerUser is how many attempts to log in by one user name are allowed in 15 minutes. A log-in
	// that leaves no factor due forgets the attempts before it. Open sessions and log-ins by passkey
	// do not depend on it. Default: 10.
	PerUser int

	// PerAddress is how many attempts are allowed in an hour from one address, or from one /64 of
	// IPv6, which one customer of a provider has. Default: 100.
	PerAddress int
}

// MaxLoginLimit bounds both limits, because the times of all attempts that count are stored.
const MaxLoginLimit = 1000

const (
	userWindow    = 15 * time.Minute
	addressWindow = time.Hour

	// maxPasswordAttempts is how often an authenticated user may give the password in a userWindow,
	// right or wrong. Each time costs a hash, and few hashes run at once. The counter is separate from
	// that of log-ins, so that only the user can fill it.
	maxPasswordAttempts = 20

	// maxAssertionAttempts is how often a credential may ask in a userWindow for a passkey assertion
	// that is not there. An assertion begins the count anew.
	maxAssertionAttempts = 20
)

var (
	passwordAttempts  = attemptLimit{"password", maxPasswordAttempts, userWindow}
	assertionAttempts = attemptLimit{"passkey_assertion", maxAssertionAttempts, userWindow}
)

func orDefault(n, byDefault int) int {
	if n <= 0 {
		n = byDefault
	}
	return min(n, MaxLoginLimit)
}

// fromAddress is an attempt from an address.
func (l LoginLimits) fromAddress(from Device) attempt {
	// One customer of a provider has an IPv4 address, or a /64.
	addr := from.Address.Unmap().WithZone("")
	network := addr.String()
	if addr.Is6() {
		network = netip.PrefixFrom(addr, 64).Masked().String()
	}
	return attempt{attemptLimit{"login_address", orDefault(l.PerAddress, 100), addressWindow}, network}
}

// byName is an attempt to log in by a name. It counts for the form in which names are unique, and
// for the text itself if that is no name.
func (l LoginLimits) byName(name string) attempt {
	if folded, refusal := foldName(name); refusal == nil {
		name = folded
	}
	return attempt{attemptLimit{"login_name", orDefault(l.PerUser, 10), userWindow}, name}
}

// attemptLimit is how often something may be tried: at most so many times in any period of that
// length. The attempts are counted in the store before anything is checked, so the limit holds over
// parallel requests and restarts. Their record expires.
type attemptLimit struct {
	what string // names the counter in the store
	most int
	per  time.Duration
}

// attempt is an attempt that a limit counts for a subject: a user, a name or an address.
type attempt struct {
	attemptLimit
	subject string
}

// attemptRecord is the attempts of one subject that one limit counts.
type attemptRecord struct {
	What    string  `json:"what"`
	Subject string  `json:"subject"` // a hash, because anybody may choose the text
	Times   []int64 `json:"times"`   // of the attempts that still count, in Unix milliseconds, oldest first
	Expires int64   `json:"expires"` // when none of them counts any more, in Unix milliseconds
}

func (a attempt) hash() string {
	sum := sha256.Sum256([]byte(a.subject))
	return hex.EncodeToString(sum[:16])
}

// admit returns the attempts that count. If one more is too many, it fails with TOO_MANY_ATTEMPTS,
// which says when the next may be made. It writes nothing, so that a refusal does not prolong the
// wait.
func (a attempt) admit(r storage.Reader, now time.Time) (*attemptRecord, error) {
	have, err := attemptTable.GetOrZero(r, a.what, a.hash())
	if err != nil {
		return nil, err
	}
	forgotten := now.Add(-a.per).UnixMilli()
	have.Times = slices.DeleteFunc(have.Times, func(at int64) bool { return at <= forgotten })
	if len(have.Times) < a.most {
		return have, nil
	}
	// One more may be made when the oldest of the last most attempts does not count any more.
	next := time.UnixMilli(have.Times[len(have.Times)-a.most]).Add(a.per)
	return nil, tooMany(next.Sub(now), "too many attempts: at most %d are allowed in %s", a.most, inWords(a.per))
}

// count counts an attempt that was admitted in the same transaction.
func (a attempt) count(t storage.Txn, now time.Time, have *attemptRecord) error {
	have.What, have.Subject = a.what, a.hash()
	have.Times = append(have.Times, now.UnixMilli())
	have.Expires = now.Add(a.per + time.Second).UnixMilli()
	return attemptTable.Put(t, nil, have)
}

// forgive forgets the attempts that were counted.
func (a attempt) forgive(t storage.Txn) error { return attemptTable.Delete(t, a.what, a.hash()) }

// countAttempts counts an attempt by all of its limits, or by none if one of them refuses it, so
// that a refusal does not prolong another wait.
func (d *Directory) countAttempts(ctx context.Context, attempts ...attempt) error {
	return fault.OfStore(d.store.Update(ctx, func(t storage.Txn) error { return countAttempts(t, d.store.Now(), attempts...) }))
}

func countAttempts(t storage.Txn, now time.Time, attempts ...attempt) error {
	records := make([]*attemptRecord, len(attempts))
	for i, a := range attempts {
		var err error
		if records[i], err = a.admit(t, now); err != nil {
			return err
		}
	}
	for i, a := range attempts {
		if err := a.count(t, now, records[i]); err != nil {
			return err
		}
	}
	return nil
}

// guard bounds failures in a row. After every few of them there is a wait. After very many, every
// attempt is refused until an operator forgives them.
type guard struct {
	what  string // names the counter in the store
	pause int    // failures before each wait
	wait  time.Duration
	block int // failures after which every attempt is refused
}

// The guards of codes. They count per user, over all sessions. Backup codes have their own, so that
// a user whose TOTP is paused or blocked can use one.
var (
	totpGuard   = guard{what: "totp", pause: 5, wait: 15 * time.Minute, block: 100}
	backupGuard = guard{what: "backup_code", pause: 5, wait: 15 * time.Minute, block: 100}
)

// failureRecord is the failures of a user that one guard has counted.
type failureRecord struct {
	What     string `json:"what"`
	UserID   string `json:"user_id"`
	Failures int    `json:"failures"`        // in a row
	Until    int64  `json:"until,omitempty"` // end of the wait, Unix milliseconds
}

// take counts an attempt of a user as a failure before it is known whether it is one, or refuses it
// with TOO_MANY_ATTEMPTS. The transaction is committed before the secret is checked.
func (g guard) take(t storage.Txn, now time.Time, userID string) error {
	have, err := failureTable.GetOrZero(t, g.what, userID)
	if err != nil {
		return err
	}
	have.What, have.UserID = g.what, userID
	if have.Failures >= g.block {
		return fault.New(fault.TooManyAttempts, "%d attempts in a row have failed; ask an operator to reset it", have.Failures)
	}
	if wait := time.UnixMilli(have.Until).Sub(now); wait > 0 {
		return tooMany(wait, "too many attempts have failed: after %d there is a pause of %s", g.pause, inWords(g.wait))
	}
	have.Failures++
	if have.Until = 0; have.Failures%g.pause == 0 {
		have.Until = now.Add(g.wait).UnixMilli()
	}
	return failureTable.Put(t, nil, have)
}

// forgive forgets the failures of a user, after a success or by an operator.
func (g guard) forgive(t storage.Txn, userID string) error {
	return failureTable.Delete(t, g.what, userID)
}

// Unblock forgets the attempts and failures for which a user has to wait: those of TOTP and backup
// codes, of the password by name and by session, and the count of the user's changes of today. The
// attempts from an address stay. The user has to prove the same factors as before.
func (d *Directory) Unblock(ctx context.Context, actor, idOrName string) error {
	return d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := FindUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		for _, g := range []guard{totpGuard, backupGuard} {
			if err := g.forgive(t, user.ID); err != nil {
				return nil, err
			}
		}
		for _, a := range []attempt{LoginLimits{}.byName(user.Name), {passwordAttempts, user.ID}} {
			if err := a.forgive(t); err != nil {
				return nil, err
			}
		}
		return &audit.Event{Actor: actor, Action: "user.unblock", User: user.ID}, audit.Forgive(t, user.ID)
	})
}

// tooMany returns TOO_MANY_ATTEMPTS with the wait in whole seconds, rounded up.
func tooMany(wait time.Duration, format string, args ...any) *fault.Fault {
	wait = (wait + time.Second - 1).Truncate(time.Second)
	return fault.New(fault.TooManyAttempts, format, args...).After(wait)
}

// inWords writes a duration for a person: "15 minutes", "a minute".
func inWords(d time.Duration) string {
	switch {
	case d == time.Hour:
		return "an hour"
	case d == time.Minute:
		return "a minute"
	case d%time.Hour == 0:
		return strconv.FormatInt(int64(d/time.Hour), 10) + " hours"
	case d%time.Minute == 0:
		return strconv.FormatInt(int64(d/time.Minute), 10) + " minutes"
	}
	return d.String()
}
