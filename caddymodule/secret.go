package caddymodule

import (
	"context"
	"fmt"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/settings"
	"github.com/caddy-modelgate/modelgate/storage"
)

// masterKeys are the keys of a configuration, newest first. If there are none, the store
// has a key file.
type masterKeys []settings.Secret

// resolve resolves placeholders and returns an error for values that are not keys.
func (keys masterKeys) resolve() error {
	for i := range keys {
		if err := settings.Resolve(fmt.Sprintf("secret %d", i+1), &keys[i]); err != nil {
			return err
		}
	}
	if len(keys) == 0 {
		return nil
	}
	_, err := keys.ring()
	return err
}

func (keys masterKeys) ring() (*seal.Keyring, error) {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = key.Reveal()
	}
	ring, err := seal.FromTexts(texts...)
	if err != nil {
		return nil, fmt.Errorf("secret: %w", err)
	}
	return ring, nil
}

// keyFile returns the path of the key file of a store on this machine; empty for other
// stores.
func keyFile(opener storage.Opener) string {
	if kept, ok := opener.(storage.KeyFiler); ok {
		return kept.KeyFile()
	}
	return ""
}

// open returns the keys of the configuration, or those of the key file, which it creates
// for a new store. A store in memory ends with the process, and so does its key.
func (keys masterKeys) open(ctx context.Context, store *storage.Store, opener storage.Opener) (*seal.Keyring, error) {
	if len(keys) > 0 {
		return keys.ring()
	}
	path := keyFile(opener)
	if path == "" {
		return seal.Random(), nil
	}
	return seal.FromFile(ctx, store, path)
}

// announceSetup logs the one-time code that creates the first administrator, once each time the
// store is opened, while there is no administrator. It is the only secret in a log. Without it, the
// first caller could become the administrator. A node of a shared store logs none while another
// one that has logged it lives.
func (rt *Runtime) announceSetup(ctx context.Context) {
	rt.announcing.Lock()
	defer rt.announcing.Unlock()
	if rt.announced {
		return
	}
	if due, err := rt.Directory.SetupDue(ctx); err == nil && !due {
		rt.announced = true
		return
	}
	code, err := rt.Directory.SetupCode(ctx)
	rt.announced = code != "" || !rt.Store.Shared()
	switch {
	case err != nil:
		rt.logger.Error("cannot create the code for the first administrator", zap.Error(err))
	case code != "":
		rt.logger.Info("there is no administrator yet; create one with this one-time code at /console/setup, or by POST /api/setup {code, username, password}",
			zap.String("code", code.Reveal()))
	}
}

// KeyRotation is the result of a rotation of the master key.
type KeyRotation struct {
	Resealed int    `json:"resealed"`           // number of records that another key than the first had sealed
	KeyFile  string `json:"key_file,omitempty"` // empty if the configuration has the keys
	Single   bool   `json:"single,omitempty"`   // the configuration has only one key, so nothing was rotated
}

// RotateMasterKey seals all secrets with a new master key: a random one if there is a key
// file, else the first one of the configuration. It then removes the old keys from the
// key file. If a rotation is interrupted, all secrets still open, and the next rotation
// completes it. Concurrent rotations wait for each other.
func (rt *Runtime) RotateMasterKey(ctx context.Context) (KeyRotation, error) {
	rt.rotating.Lock()
	defer rt.rotating.Unlock()
	done := KeyRotation{KeyFile: rt.Keyring.Path()}
	done.Single = done.KeyFile == "" && rt.Keyring.Count() == 1
	if done.KeyFile != "" {
		if err := rt.Keyring.Rotate(); err != nil {
			return done, err
		}
	}
	var err error
	if done.Resealed, err = rt.Directory.Reseal(ctx); err != nil {
		return done, err
	}
	if done.KeyFile != "" {
		err = rt.Keyring.DropOld()
	}
	return done, err
}

// unmarshalSecret reads
//
//	secret <key>...
//
// in one line or several, the newest key first. Errors do not contain keys.
func (a *App) unmarshalSecret(d *caddyfile.Dispenser) error {
	keys := d.RemainingArgs()
	if len(keys) == 0 {
		return d.ArgErr()
	}
	for _, key := range keys {
		if key == "" {
			return d.Err("the secret is empty")
		}
		a.Secrets = append(a.Secrets, settings.Secret(key))
	}
	return nil
}

// keepsKeys reports whether a configuration with these keys continues to use those of the
// runtime. They are the key file, or a random key for a store in memory.
func (rt *Runtime) keepsKeys(keys masterKeys, opener storage.Opener) bool {
	return len(keys) == 0 && (rt.Keyring.Path() != "" || keyFile(opener) == "")
}

// checkKeys returns an error if the keys of a configuration do not open the secrets in the
// store. It reports whether [Runtime.useKeys] would change the keys in force. It changes
// nothing.
func (rt *Runtime) checkKeys(ctx context.Context, keys masterKeys, opener storage.Opener) (changed bool, err error) {
	if rt.keepsKeys(keys, opener) {
		return false, nil
	}
	var ring *seal.Keyring
	if len(keys) > 0 {
		ring, err = keys.ring()
	} else {
		ring, err = seal.ReadFile(ctx, rt.Store, keyFile(opener))
	}
	if err != nil || ring == nil {
		return true, err
	}
	if err := ring.Verify(ctx, rt.Store); err != nil {
		return true, fmt.Errorf("secret: %w", err)
	}
	return !rt.Keyring.Equal(ring), nil
}

// useKeys puts the keys of a configuration in force, and records in the store that later
// secrets need them.
func (rt *Runtime) useKeys(ctx context.Context, keys masterKeys, opener storage.Opener) error {
	rt.rotating.Lock()
	defer rt.rotating.Unlock()
	if rt.keepsKeys(keys, opener) {
		return rt.Keyring.Check(ctx, rt.Store)
	}
	ring, err := keys.open(ctx, rt.Store, opener)
	if err != nil {
		return err
	}
	if err := rt.Keyring.Replace(ctx, rt.Store, ring); err != nil {
		return fmt.Errorf("secret: %w", err)
	}
	return nil
}
