package identity

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// MaxKeys is how many keys in force a user may make by himself.
const MaxKeys = 1000

// KeyChange changes what its owner decides about a key. What is nil stays as it
// is; what is given stands in place of all that was there, but for the limits,
// of which those that are nil stay.
type KeyChange struct {
	Name        *string       `json:"name,omitempty"`
	Models      *[]string     `json:"models,omitempty"`
	IPRanges    *[]string     `json:"ip_ranges,omitempty"`
	Expires     *int64        `json:"expires,omitempty"`
	Limits      *LimitsChange `json:"limits,omitempty"`
	CallbackURL *string       `json:"callback_url,omitempty"`
}

// CreateOwnKey makes a key for the user who asks and returns it with its secret,
// which is shown this once.
func (d *Directory) CreateOwnKey(ctx context.Context, a *Account, spec KeySpec) (Key, Secret, error) {
	if err := whole(a); err != nil {
		return Key{}, "", err
	}
	key, refusal := d.draft(spec)
	if refusal != nil {
		return Key{}, "", refusal
	}
	return d.createKey(ctx, audit.Event{Actor: a.UserID, Address: a.Address}, a.UserID, key, func(t storage.Txn, inForce int) error {
		if _, _, err := d.own(t, a); err != nil {
			return err
		}
		if inForce >= MaxKeys {
			return fault.New(fault.Conflict, "an account has at most %d keys; revoke one that is not used", MaxKeys)
		}
		return nil
	})
}

// OwnKeys returns the keys of the user who asks.
func (d *Directory) OwnKeys(ctx context.Context, a *Account) ([]Key, error) {
	if err := whole(a); err != nil {
		return nil, err
	}
	keys, err := d.Keys(ctx, a.UserID)
	for i := range keys {
		keys[i] = keys[i].ofOwner()
	}
	return keys, err
}

// OwnKey returns a key of the user who asks. One of somebody else is not there:
// NOT_FOUND, as for one that never was; so it is in all that follows.
func (d *Directory) OwnKey(ctx context.Context, a *Account, id string) (Key, error) {
	if err := whole(a); err != nil {
		return Key{}, err
	}
	var key Key
	err := d.store.View(ctx, func(r storage.Reader) error {
		record, err := findOwnKey(r, a.UserID, id)
		if err == nil {
			key = record.ofOwner()
		}
		return err
	})
	return key, fault.OfStore(err)
}

// ChangeOwnKey changes what the owner of a key decides about it, for the owner. What the
// operator has set stays, and counts where it is lower. Setting a value that is there
// already is no change.
func (d *Directory) ChangeOwnKey(ctx context.Context, a *Account, id string, change KeyChange) (Key, error) {
	return d.changeOwnKey(ctx, a, id, func(key *keyRecord) (*audit.Event, error) {
		now := d.store.Now()
		if refusal := key.ended(now); refusal != nil {
			return nil, refusal
		}
		spec := key.spec()
		change.of(&spec)
		draft, refusal := spec.draft(now)
		if refusal == nil && change.CallbackURL != nil {
			refusal = d.allowCallback(*change.CallbackURL)
		}
		if refusal != nil {
			return nil, refusal
		}
		before := key.spec()
		key.Name, key.Scope, key.CallbackURL = draft.Name, draft.Scope, draft.CallbackURL
		again := change.CallbackURL != nil && key.CallbackGone != ""
		if again {
			key.CallbackGone, key.CallbackDisabled = "", 0
		}
		if reflect.DeepEqual(key.spec(), before) && !again {
			return nil, nil
		}
		changed := strings.Join(change.names(), ", ")
		return &audit.Event{Actor: a.UserID, Action: "key.change", User: a.UserID, Key: key.ID, Detail: changed}, nil
	})
}

// spec returns what was decided about a key, as its owner would write it.
func (k *keyRecord) spec() KeySpec {
	spec := KeySpec{Name: k.Name, Expires: k.Expires, Limits: k.Limits, CallbackURL: k.CallbackURL}
	for _, pattern := range k.Models {
		spec.Models = append(spec.Models, string(pattern))
	}
	for _, r := range k.Ranges {
		spec.IPRanges = append(spec.IPRanges, rangeText(r))
	}
	return spec
}

func rangeText(r netip.Prefix) string {
	if r.IsSingleIP() {
		return r.Addr().String()
	}
	return r.String()
}

// of changes a spec.
func (c KeyChange) of(spec *KeySpec) {
	replace(&spec.Name, c.Name)
	replace(&spec.Models, c.Models)
	replace(&spec.IPRanges, c.IPRanges)
	replace(&spec.Expires, c.Expires)
	replace(&spec.CallbackURL, c.CallbackURL)
	if c.Limits != nil {
		spec.Limits = c.Limits.of(spec.Limits)
	}
}

// names are what a change names, for the audit: who finds that his key was changed
// has to know what to look at.
func (c KeyChange) names() (names []string) {
	for name, given := range map[string]bool{
		"name": c.Name != nil, "models": c.Models != nil, "ip_ranges": c.IPRanges != nil,
		"expires": c.Expires != nil, "limits": c.Limits != nil, "callback_url": c.CallbackURL != nil,
	} {
		if given {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// RotateOwnKey is [Directory.RotateKey] for the user who asks.
func (d *Directory) RotateOwnKey(ctx context.Context, a *Account, id string, grace time.Duration) (Key, Secret, error) {
	return d.rotateKey(a.UserID, grace, func(fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
		return d.changeOwnKey(ctx, a, id, fn)
	})
}

// RevokeOwnKey is [Directory.RevokeKey] for the user who asks.
func (d *Directory) RevokeOwnKey(ctx context.Context, a *Account, id string) (Key, error) {
	return d.changeOwnKey(ctx, a, id, func(key *keyRecord) (*audit.Event, error) { return d.revoke(a.UserID, key) })
}

// changeOwnKey runs fn over a key of the user who asks.
func (d *Directory) changeOwnKey(ctx context.Context, a *Account, id string, fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
	if err := whole(a); err != nil {
		return Key{}, err
	}
	key, err := d.changeKeyIn(ctx, id, func(r storage.Reader) (*keyRecord, error) {
		if _, _, err := d.own(r, a); err != nil {
			return nil, err
		}
		return findOwnKey(r, a.UserID, id)
	}, func(key *keyRecord) (*audit.Event, error) {
		event, err := fn(key)
		if event != nil {
			event.Address = a.Address
		}
		return event, err
	})
	return key.ofOwner(), err
}

// findOwnKey returns a key of a user. The owner is part of the look-up: what is
// another's is not found.
func findOwnKey(r storage.Reader, userID, id string) (*keyRecord, error) {
	key, err := findKey(r, id)
	if err == nil && key.UserID != userID {
		return nil, noKey(id)
	}
	return key, err
}
