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

// resolve resolves placeholders and refuses values that are not keys.
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

// announceSetup logs the one-time code that creates the first administrator,
// once each time the store is opened, while there is no administrator. It is the
// only secret in a log. Without it, the first caller could become the
// administrator.
func (rt *Runtime) announceSetup(ctx context.Context) {
	rt.announcing.Do(func() {
		code, err := rt.Directory.SetupCode(ctx)
		switch {
		case err != nil:
			rt.logger.Error("making the code for the first administrator", zap.Error(err))
		case code != "":
			rt.logger.Info("there is no administrator yet; make one with this code, once, by POST /api/setup {code, username, password}",
				zap.String("code", code.Reveal()))
		}
	})
}

// KeyRotation is the result of a rotation of the master key.
type KeyRotation struct {
	Resealed int    `json:"resealed"`           // records that were sealed by another key than the first
	KeyFile  string `json:"key_file,omitempty"` // empty where the configuration has the keys
	Single   bool   `json:"single,omitempty"`   // the configuration has one key: there was none to rotate to
}

// RotateMasterKey seals everything by a new master key: one that is drawn, where
// there is a key file, else the first one of the configuration. The old keys leave
// the key file when nothing needs them any more. If the rotation is cut off, everything
// still opens, and a second rotation ends it. Rotations wait for each other.
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
// in one line or several, the newest key first. What a key is stands in no
// error.
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

// keepsKeys reports whether a configuration with these keys uses those that the runtime
// has: it has opened the key file, or drawn a key for its life.
func (rt *Runtime) keepsKeys(keys masterKeys, opener storage.Opener) bool {
	return len(keys) == 0 && (rt.Keyring.Path() != "" || keyFile(opener) == "")
}

// checkKeys returns an error if the keys of a configuration do not open what is
// sealed in the store, and reports whether [Runtime.useKeys] would change the keys in
// force. It changes nothing.
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

// useKeys puts the keys of a configuration in force, and records that what is
// sealed from then on needs them.
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
