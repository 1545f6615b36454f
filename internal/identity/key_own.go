package identity

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
)

// MaxKeys is the maximum number of keys in force that a user may create.
const MaxKeys = 1000

// KeyChange is a change of a key by its owner. Fields that are nil stay. Other fields replace the
// earlier value, except that single limits that are nil stay.
type KeyChange struct {
	Name        *string       `json:"name,omitempty"`
	Models      *[]string     `json:"models,omitempty"`
	IPRanges    *[]string     `json:"ip_ranges,omitempty"`
	Expires     *int64        `json:"expires,omitempty"`
	Limits      *LimitsChange `json:"limits,omitempty"`
	CallbackURL *string       `json:"callback_url,omitempty"`
}

// CreateOwnKey creates a key for the account's user and returns it with its secret, which is shown
// only here.
func (d *Directory) CreateOwnKey(ctx context.Context, a *Account, spec KeySpec) (Key, Secret, error) {
	if err := refuseHalfOpen(a); err != nil {
		return Key{}, "", err
	}
	key, refusal := d.draft(spec)
	if refusal != nil {
		return Key{}, "", refusal
	}
	created, secret, err := d.createKey(ctx, audit.Event{Actor: a.UserID, Address: a.Address}, a.UserID, key, func(t storage.Txn, inForce int) error {
		if _, _, err := d.own(t, a); err != nil {
			return err
		}
		if inForce >= MaxKeys {
			return fault.New(fault.Conflict, "an account has at most %d keys; revoke one that is not used", MaxKeys)
		}
		return nil
	})
	return created.ofOwner(), secret, err
}

// OwnKeys returns the keys of the account's user.
func (d *Directory) OwnKeys(ctx context.Context, a *Account) ([]Key, error) {
	if err := refuseHalfOpen(a); err != nil {
		return nil, err
	}
	keys, err := d.Keys(ctx, a.UserID)
	for i := range keys {
		keys[i] = keys[i].ofOwner()
	}
	return keys, err
}

// OwnKey returns a key of the account's user. For a key of another user it returns NOT_FOUND, as for
// a key that does not exist. All methods below do the same.
func (d *Directory) OwnKey(ctx context.Context, a *Account, id string) (Key, error) {
	if err := refuseHalfOpen(a); err != nil {
		return Key{}, err
	}
	return view(ctx, d, func(r storage.Reader) (Key, error) {
		key, err := findOwnKey(r, a.UserID, id)
		if err != nil {
			return Key{}, err
		}
		return key.ofOwner(), nil
	})
}

// ChangeOwnKey changes a key for its owner. The scope of the operator stays and
// still applies. Setting the current value is not a change.
func (d *Directory) ChangeOwnKey(ctx context.Context, a *Account, id string, change KeyChange) (Key, error) {
	return d.changeOwnKey(ctx, a, id, func(key *keyRecord) (*audit.Event, error) {
		now := d.store.Now()
		if refusal := key.ended(now); refusal != nil {
			return nil, refusal
		}
		spec := key.spec()
		change.applyTo(&spec)
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

// spec returns the properties of a key in the form that its owner writes.
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

// applyTo changes a spec.
func (c KeyChange) applyTo(spec *KeySpec) {
	replace(&spec.Name, c.Name)
	replace(&spec.Models, c.Models)
	replace(&spec.IPRanges, c.IPRanges)
	replace(&spec.Expires, c.Expires)
	replace(&spec.CallbackURL, c.CallbackURL)
	if c.Limits != nil {
		spec.Limits = c.Limits.applyTo(spec.Limits)
	}
}

// names returns the names of the fields that a change sets, for the audit.
func (c KeyChange) names() []string {
	var given map[string]any
	members, _ := json.Marshal(c) // only the fields that are not nil
	_ = json.Unmarshal(members, &given)
	return slices.Sorted(maps.Keys(given))
}

// RotateOwnKey is [Directory.RotateKey] for the account's user.
func (d *Directory) RotateOwnKey(ctx context.Context, a *Account, id string, grace time.Duration) (Key, Secret, error) {
	return d.rotateKey(a.UserID, grace, func(fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
		return d.changeOwnKey(ctx, a, id, fn)
	})
}

// RevokeOwnKey is [Directory.RevokeKey] for the account's user.
func (d *Directory) RevokeOwnKey(ctx context.Context, a *Account, id string) (Key, error) {
	return d.changeOwnKey(ctx, a, id, func(key *keyRecord) (*audit.Event, error) { return d.revoke(a.UserID, key) })
}

// changeOwnKey runs fn over a key of the account's user.
func (d *Directory) changeOwnKey(ctx context.Context, a *Account, id string, fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
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

// findOwnKey returns a key of a user. For a key of another user it returns NOT_FOUND.
func findOwnKey(r storage.Reader, userID, id string) (*keyRecord, error) {
	key, err := findKey(r, id)
	if err == nil && key.UserID != userID {
		return nil, noKey(id)
	}
	return key, err
}

// At most maxEndedKeys ended keys of a user are kept; the audit keeps them longer. Creating a key
// drops at most dropAtOnce of the keys that ended first, so that it stays fast.
const (
	maxEndedKeys = 1000
	dropAtOnce   = 100
)

// ends returns when a key ends or has ended, in Unix seconds; zero: never.
func (k *keyRecord) ends() int64 { return cmp.Or(k.Revoked, k.ExpiresAt()) }

// dropEnded returns how many keys of a user are in force, and drops those that ended first if too
// many have ended.
func dropEnded(t storage.Txn, userID string, now time.Time) (inForce int, dropped []string, err error) {
	all, err := collect(keyTable.PrimaryKeys(t, userKeys.Under(userID)))
	if err != nil {
		return 0, nil, err
	}
	ended, err := collect(keyTable.PrimaryKeys(t, userKeys.Under(userID).From(userID, int64(1)).Before(userID, now.Unix()+1)))
	if err != nil {
		return 0, nil, err
	}
	dropped = ended[:min(max(len(ended)-maxEndedKeys, 0), dropAtOnce)]
	for _, id := range dropped {
		if err := keyTable.Delete(t, id); err != nil {
			return 0, nil, err
		}
	}
	return len(all) - len(ended), dropped, nil
}

// consoleKey is the hidden key of a user. Every task belongs to a key, and the tasks that the
// user submits in the console belong to this one. It has no secret, so it cannot be used. It is not
// listed, and has neither a scope nor limits: only the user's limits apply.
type consoleKey struct {
	UserID  string `json:"user_id"`
	ID      string `json:"id"`
	Created int64  `json:"created"` // Unix seconds
}

// ConsolePrincipal returns the principal of a user who submits a task in the console, with the hidden
// key. The first call creates the key.
func (d *Directory) ConsolePrincipal(ctx context.Context, a *Account) (*Principal, error) {
	p, err := view(ctx, d, func(r storage.Reader) (*Principal, error) { return d.consolePrincipal(r, a) })
	if err != nil || p.KeyID != "" {
		return p, err
	}
	key := consoleKey{UserID: a.UserID, ID: credential.NewID("key"), Created: d.store.Now().Unix()}
	err = d.Audit.Change(ctx, func(t storage.Txn) (_ *audit.Event, err error) {
		if p, err = d.consolePrincipal(t, a); err != nil || p.KeyID != "" {
			return nil, err
		}
		p.KeyID = key.ID
		event := &audit.Event{Actor: a.UserID, Action: "key.console", User: a.UserID, Key: key.ID, Address: a.Address}
		return event, consoleKeyTable.Put(t, nil, &key)
	})
	return p, err
}

// KeyLabel says which key an id names.
type KeyLabel struct {
	Name    string // that the user has given it; may be empty
	Console bool   // it is the hidden key of the user, to which tasks made in the console belong
}

// KeyLabels returns labels by key id. owners are the users of the keys, by key id. It reads these keys
// alone. A key that was dropped has no label.
func (d *Directory) KeyLabels(ctx context.Context, owners map[string]string) (map[string]KeyLabel, error) {
	return view(ctx, d, func(r storage.Reader) (map[string]KeyLabel, error) {
		labels := make(map[string]KeyLabel, len(owners))
		for id, user := range owners {
			key, err := keyTable.Get(r, id)
			if err != nil {
				return nil, err
			}
			if key != nil {
				labels[id] = KeyLabel{Name: key.Name}
				continue
			}
			hidden, err := consoleKeyTable.GetOrZero(r, user)
			if err != nil {
				return nil, err
			}
			if hidden.ID == id {
				labels[id] = KeyLabel{Console: true}
			}
		}
		return labels, nil
	})
}

// ConsoleKey returns the id of the hidden key of a user; empty if there is none yet.
func (d *Directory) ConsoleKey(ctx context.Context, userID string) (string, error) {
	key, err := view(ctx, d, func(r storage.Reader) (*consoleKey, error) { return consoleKeyTable.GetOrZero(r, userID) })
	if err != nil {
		return "", err
	}
	return key.ID, nil
}

// consolePrincipal returns the principal of a user with the hidden key; KeyID is empty if there is none
// yet.
func (d *Directory) consolePrincipal(r storage.Reader, a *Account) (*Principal, error) {
	_, user, err := d.own(r, a)
	if err != nil {
		return nil, err
	}
	key, err := consoleKeyTable.GetOrZero(r, user.ID)
	if err != nil {
		return nil, err
	}
	return &Principal{UserID: user.ID, UserName: user.Name, KeyID: key.ID, UserLimits: user.Limits}, nil
}
