package identity

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Key is an API key without its secret.
type Key struct {
	ID      string `json:"id"`
	UserID  string `json:"user_id"`
	Name    string `json:"name,omitempty"`
	Hint    string `json:"hint"`              // the prefix and the last four characters, for recognition
	Created int64  `json:"created"`           // Unix seconds
	Revoked int64  `json:"revoked,omitempty"` // Unix seconds, zero: not revoked

	// Scope is the scope that the owner of the key has set, and Operator that of the operator.
	// Both apply: the lower of two limits, and only models and addresses in both. Only
	// operators see the scope of the operator.
	Scope
	Operator Scope `json:"operator,omitzero"`

	// PreviousUntil is when the secret of before the last rotation ends, in Unix
	// seconds; zero when there is none.
	PreviousUntil int64 `json:"previous_until,omitempty"`

	// CallbackURL is the address to which the ends of this key's tasks are reported.
	CallbackURL string `json:"callback_url,omitempty"`

	// CallbackSecretCreated is when the secret that signs callbacks was created, and
	// CallbackPreviousUntil when the previous one ends, in Unix seconds; zero when there is
	// none.
	CallbackSecretCreated int64 `json:"callback_secret_created,omitempty"`
	CallbackPreviousUntil int64 `json:"callback_previous_until,omitempty"`

	// CallbackSecretMissing means that nothing is sent to CallbackURL until there is a secret to
	// sign it. Only the answers to owners have it; it is not stored.
	CallbackSecretMissing bool `json:"callback_secret_missing,omitempty"`

	// CallbackDisabled is when sending of callbacks stopped because their receiver answered that
	// the address is gone, in Unix seconds; zero: they are sent. Giving the key an address, even
	// the same one, starts sending again.
	CallbackDisabled int64 `json:"callback_disabled,omitempty"`
}

// Scope limits the use of a key, by its owner or by the operator.
type Scope struct {
	Models  catalog.Patterns `json:"models,omitempty"`    // none: every model
	Ranges  []netip.Prefix   `json:"ip_ranges,omitempty"` // none: everywhere
	Expires int64            `json:"expires,omitempty"`   // Unix seconds, zero: never
	Limits  Limits           `json:"limits,omitzero"`
}

// IsZero reports whether the scope allows everything.
func (s Scope) IsZero() bool {
	return len(s.Models) == 0 && len(s.Ranges) == 0 && s.Expires == 0 && s.Limits == Limits{}
}

// ExpiresAt returns when the key expires, by its owner or by the operator, in Unix
// seconds; zero if it never does.
func (k Key) ExpiresAt() int64 {
	if k.Expires == 0 || k.Operator.Expires == 0 {
		return max(k.Expires, k.Operator.Expires)
	}
	return min(k.Expires, k.Operator.Expires)
}

// ofOwner returns the key as its owner sees it: without the scope of the operator, except the time
// of expiry.
func (k Key) ofOwner() Key {
	k.Expires, k.Operator = k.ExpiresAt(), Scope{}
	k.CallbackSecretMissing = k.CallbackURL != "" && k.CallbackSecretCreated == 0
	return k
}

// keyRecord is a stored key, with the SHA-256 of its secret and, in the grace of a rotation, of
// the previous secret.
type keyRecord struct {
	Key
	Hash     credential.Hash `json:"hash"`
	Previous credential.Hash `json:"previous,omitzero"`

	// The secrets that sign callbacks, sealed with the purpose "callback" and the key's id.
	CallbackSecret   []byte `json:"callback_secret,omitempty"`
	CallbackPrevious []byte `json:"callback_previous,omitempty"`

	// CallbackGone is the address to which CallbackDisabled refers.
	CallbackGone string `json:"callback_gone,omitempty"`
}

// KeySpec has the properties of a key that its owner or the operator chooses.
type KeySpec struct {
	Name     string   `json:"name"`
	Models   []string `json:"models"`    // patterns; none: every model
	IPRanges []string `json:"ip_ranges"` // addresses or CIDR; none: everywhere
	Expires  int64    `json:"expires"`   // Unix seconds; zero: never
	Limits   Limits   `json:"limits"`

	CallbackURL string `json:"callback_url"` // absolute, http or https; empty: none
}

// maxScope limits the patterns and the ranges of one key, because every call checks them.
const maxScope = 64

// draft checks a spec and returns the key it describes, without a secret.
func (spec KeySpec) draft(now time.Time) (*keyRecord, *fault.Fault) {
	key := &keyRecord{Key: Key{Name: strings.TrimSpace(spec.Name), Scope: Scope{Expires: spec.Expires}}}
	if n := utf8.RuneCountInString(key.Name); n > 64 || !visible(key.Name) {
		return key, fault.At(fault.InvalidParameter, "name", "a key's name has at most 64 visible characters, this has %d", n)
	}
	if len(spec.Models) > maxScope {
		return key, fault.At(fault.InvalidParameter, "models", "at most %d model patterns are allowed", maxScope)
	}
	models, err := catalog.ParsePatterns(spec.Models)
	if err != nil {
		return key, fault.At(fault.InvalidParameter, "models", "%v", err)
	}
	key.Models = models
	if len(spec.IPRanges) > maxScope {
		return key, fault.At(fault.InvalidParameter, "ip_ranges", "at most %d ranges are allowed", maxScope)
	}
	for _, word := range spec.IPRanges {
		r, ok := parseRange(word)
		if !ok {
			return key, fault.At(fault.InvalidParameter, "ip_ranges", "%q is neither an address nor a range such as 10.0.0.0/8", word)
		}
		key.Ranges = append(key.Ranges, r)
	}
	if spec.Expires != 0 && spec.Expires <= now.Unix() {
		return key, fault.At(fault.InvalidParameter, "expires", "the expiry must be in the future")
	}
	limits, refusal := spec.Limits.checked()
	if refusal != nil {
		return key, refusal.WithParam("limits." + refusal.Param)
	}
	key.Limits = limits
	if refusal := checkCallbackURL(spec.CallbackURL); refusal != nil {
		return key, refusal
	}
	key.CallbackURL = spec.CallbackURL
	return key, nil
}

// visible reports whether a text has only letters, marks, digits, punctuation, symbols and the
// common space. These are visible and do not change the order of display.
func visible(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) })
}

func parseRange(word string) (netip.Prefix, bool) {
	if addr, err := netip.ParseAddr(word); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), true
	}
	r, err := netip.ParsePrefix(word)
	if err != nil || r.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return r.Masked(), true
}

// CreateKey creates a key for a user on behalf of an operator. It returns the key with its secret,
// which is shown only here. The owner cannot extend the scope of the spec. For a disabled user, it
// returns CONFLICT.
func (d *Directory) CreateKey(ctx context.Context, actor, idOrName string, spec KeySpec) (Key, Secret, error) {
	key, refusal := d.draft(spec)
	if refusal != nil {
		return Key{}, "", refusal
	}
	key.Operator, key.Scope = key.Scope, Scope{}
	return d.createKey(ctx, audit.Event{Actor: actor}, idOrName, key, func(storage.Txn, int) error { return nil })
}

// draft checks a spec and returns the key it describes, without a secret.
func (d *Directory) draft(spec KeySpec) (*keyRecord, *fault.Fault) {
	key, refusal := spec.draft(d.store.Now())
	if refusal == nil {
		refusal = d.allowCallback(spec.CallbackURL)
	}
	return key, refusal
}

// createKey creates the key of a draft for a user, unless may returns an error. The argument of may
// is the number of keys that the user has in force. The argument by has the actor of the event.
// createKey drops keys that ended long ago.
func (d *Directory) createKey(ctx context.Context, by audit.Event, idOrName string, key *keyRecord, may func(t storage.Txn, inForce int) error) (Key, Secret, error) {
	now := d.store.Now()
	secret := credential.APIKey.Draw()
	key.ID, key.Created = credential.NewID("key"), now.Unix()
	key.setSecret(secret)
	var dropped []string //nolint:prealloc // almost always none
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		user, err := findUser(t, idOrName)
		if err != nil {
			return nil, err
		}
		if user.Disabled {
			return nil, fault.At(fault.Conflict, "user", "the user %q is disabled", user.Name)
		}
		var inForce int
		if inForce, dropped, err = dropEnded(t, user.ID, d.store.Now()); err != nil {
			return nil, err
		}
		if err := may(t, inForce); err != nil {
			return nil, err
		}
		key.UserID = user.ID
		event := &audit.Event{Actor: by.Actor, Action: "key.create", User: user.ID, Key: key.ID, Detail: key.Name, Address: by.Address}
		if err := d.tell(t, keyTopic, append(dropped, key.ID)...); err != nil {
			return nil, err
		}
		return event, keyTable.Put(t, nil, key)
	})
	d.refreshOwn(append(dropped, key.ID), nil)
	return key.Key, secret, err
}

// Keys returns the keys of the user with this id or name, or of all users if it is empty.
func (d *Directory) Keys(ctx context.Context, idOrName string) ([]Key, error) {
	return view(ctx, d, func(r storage.Reader) ([]Key, error) {
		in := keyTable.Under()
		if idOrName != "" {
			user, err := findUser(r, idOrName)
			if err != nil {
				return nil, err
			}
			in = userKeys.Under(user.ID)
		}
		keys := []Key{}
		all, err := collect(keyTable.Scan(r, in))
		for _, key := range all {
			keys = append(keys, key.Key)
		}
		slices.SortFunc(keys, func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
		return keys, err
	})
}

// KeyPage returns at most limit keys of all users, in the order of their ids, behind the key with the id
// after. If there may be more, next is the cursor.
func (d *Directory) KeyPage(ctx context.Context, after string, limit int64) (keys []Key, next string, err error) {
	in := keyTable.Under()
	if after != "" {
		in = in.From(after + "\x00")
	}
	err = d.store.View(ctx, func(r storage.Reader) error {
		list, last, err := keyTable.Matching(r, in, limit, limit, func(*keyRecord) bool { return true })
		keys, next = make([]Key, len(list)), ""
		for i, key := range list {
			keys[i] = key.Key
		}
		if last != nil {
			next = last.ID
		}
		return err
	})
	return keys, next, fault.OfStore(err)
}

// RevokeKey ends a key permanently. Calls that have begun continue. Revoking a revoked key changes
// nothing.
func (d *Directory) RevokeKey(ctx context.Context, actor, id string) (Key, error) {
	return d.changeKey(ctx, id, func(key *keyRecord) (*audit.Event, error) { return d.revoke(actor, key) })
}

func (d *Directory) revoke(actor string, key *keyRecord) (*audit.Event, error) {
	if key.Revoked != 0 {
		return nil, nil
	}
	key.Revoked = max(d.store.Now().Unix(), 1)
	return &audit.Event{Actor: actor, Action: "key.revoke", User: key.UserID, Key: key.ID}, nil
}

// MaxGrace bounds how long the previous secret may stay in force after a rotation.
const MaxGrace = 30 * 24 * time.Hour

// RotateKey gives a key a new secret. Id, scope and limits stay. The old secret stays in force
// for grace, at most 30 days. A secret in the grace of an earlier rotation ends now.
func (d *Directory) RotateKey(ctx context.Context, actor, id string, grace time.Duration) (Key, Secret, error) {
	return d.rotateKey(actor, grace, func(fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
		return d.changeKey(ctx, id, fn)
	})
}

// rotateKey rotates the key that change finds.
func (d *Directory) rotateKey(actor string, grace time.Duration, change func(func(*keyRecord) (*audit.Event, error)) (Key, error)) (Key, Secret, error) {
	if grace < 0 || grace > MaxGrace {
		return Key{}, "", fault.At(fault.InvalidParameter, "grace", "the grace period is between 0 and %v", MaxGrace)
	}
	secret := credential.APIKey.Draw()
	key, err := change(func(key *keyRecord) (*audit.Event, error) {
		if refusal := key.ended(d.store.Now()); refusal != nil {
			return nil, refusal
		}
		key.Previous, key.PreviousUntil = credential.Hash{}, 0
		if grace > 0 {
			key.Previous, key.PreviousUntil = key.Hash, d.store.Now().Add(grace).Unix()
		}
		key.setSecret(secret)
		return &audit.Event{Actor: actor, Action: "key.rotate", User: key.UserID, Key: key.ID, Detail: grace.String()}, nil
	})
	return key, secret, err
}

// setSecret replaces the secret of the key.
func (k *keyRecord) setSecret(secret Secret) {
	hash, _ := credential.APIKey.Hash(secret.Reveal())
	k.Hash, k.Hint = hash, credential.APIKey.Hint(secret)
}

// ended returns CONFLICT if the key is revoked or has expired.
func (k *keyRecord) ended(now time.Time) *fault.Fault {
	switch {
	case k.Revoked != 0:
		return fault.At(fault.Conflict, "id", "the key %s is revoked", k.ID)
	case k.ExpiresAt() != 0 && k.ExpiresAt() <= now.Unix():
		return fault.At(fault.Conflict, "id", "the key %s has expired", k.ID)
	}
	return nil
}

// changeKey runs fn over a key in one transaction and updates memory. If it takes something away, or the
// same change before did, that is no longer in force on any node when changeKey returns without an error.
func (d *Directory) changeKey(ctx context.Context, id string, fn func(*keyRecord) (*audit.Event, error)) (Key, error) {
	return d.changeKeyIn(ctx, id, func(r storage.Reader) (*keyRecord, error) { return findKey(r, id) }, fn)
}

// changeKeyIn is changeKey for the key that find returns.
func (d *Directory) changeKeyIn(ctx context.Context, id string,
	find func(storage.Reader) (*keyRecord, error), fn func(*keyRecord) (*audit.Event, error),
) (Key, error) {
	var key keyRecord
	var takes bool
	err := d.Audit.Change(ctx, func(t storage.Txn) (*audit.Event, error) {
		takes = false
		before, err := find(t)
		if err != nil {
			return nil, err
		}
		key = *before
		event, err := fn(&key)
		if err != nil {
			return nil, err
		}
		if event == nil {
			takes = true // an earlier change may have, and may not be in force everywhere yet
			return nil, nil
		}
		takes = takesFrom(before.inForce(new(userRecord)), key.inForce(new(userRecord)))
		if err := d.tell(t, keyTopic, id); err != nil {
			return nil, err
		}
		return event, keyTable.Put(t, before, &key)
	})
	// Refresh also after an error: with an unknown outcome, a revoked key must not stay in memory.
	d.refreshOwn([]string{id}, nil)
	if err == nil && takes {
		err = d.inForceEverywhere(ctx)
	}
	return key.Key, err
}

// KeyOwner returns the id of the user of a key.
func (d *Directory) KeyOwner(ctx context.Context, id string) (string, error) {
	return view(ctx, d, func(r storage.Reader) (string, error) {
		key, err := findKey(r, id)
		if err != nil {
			return "", err
		}
		return key.UserID, nil
	})
}

func findKey(r storage.Reader, id string) (*keyRecord, error) {
	key, err := keyTable.Get(r, id)
	if err == nil && key == nil {
		err = noKey(id)
	}
	return key, err
}

func noKey(id string) *fault.Fault {
	return fault.At(fault.NotFound, "key", "there is no key %q", id)
}
