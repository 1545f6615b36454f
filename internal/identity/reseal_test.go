package identity

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/factor"
	"github.com/caddy-modelgate/modelgate/internal/identity/reseal"
	"github.com/caddy-modelgate/modelgate/internal/seal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestFactorSecretsAreNotInTheStoreInClear(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.newAccount(t, f.user(t, "ann"), false)
	pending, err := f.factors.SetUpTOTP(t.Context(), ann.holder(), "Gate", true)
	if err != nil {
		t.Fatal(err)
	}
	seed, codes := f.withTOTP(t, ann)
	all := f.contents(t)
	raw := func(seed string) []string {
		secret := mustBase32(t, seed)
		asJSON, _ := json.Marshal(secret)
		return []string{seed, string(secret), strings.Trim(string(asJSON), `"`), fmt.Sprintf("%x", secret)}
	}
	for _, secret := range append(raw(seed), raw(pending.Secret.Reveal())...) {
		if strings.Contains(all, secret) {
			t.Errorf("a seed is in the store as %q", secret)
		}
	}
	for _, code := range codes {
		digits, _ := credential.ReadCode(code, 12)
		hash := sha256.Sum256([]byte("backup code\x00" + ann.UserID + "\x00" + digits))
		asJSON, _ := json.Marshal(hash[:])
		for _, secret := range []string{code, digits, string(hash[:]), strings.Trim(string(asJSON), `"`), fmt.Sprintf("%x", hash)} {
			if strings.Contains(all, secret) {
				t.Errorf("a backup code, or the hash of one, is in the store as %q", secret)
			}
		}
	}
}

func TestResealUsesTheNewestKeyForAllSecrets(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const users = 2*reseal.Step + 3
	var last *Account
	err := f.store.Update(t.Context(), func(txn storage.Txn) error {
		for i := range users { // enough for three transactions
			id := fmt.Sprintf("usr_%04d", i)
			sealed, err := f.keyring.For("totp").Seal(id, make([]byte, 20))
			if err != nil {
				return err
			}
			if err := factor.TOTPTable.Put(txn, nil, &factor.TOTP{UserID: id, Seed: sealed, LastStep: int64(i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	last = f.newAccount(t, f.user(t, "ann"), false)
	seed, codes := f.withTOTP(t, last)
	key, _ := f.key(t, "ann", KeySpec{})
	_, callback, err := f.RenewCallbackSecret(t.Context(), last, key.ID)
	if err != nil {
		t.Fatal(err)
	}
	newest, err := seal.FromTexts(strings.Repeat("1f", 31)+"2e", testKeyText)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), f.store, newest, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := d.Reseal(t.Context()); err != nil || n != users+3 {
		t.Fatalf("%d records, %v; want %d", n, err, users+3)
	}
	if n, err := d.Reseal(t.Context()); err != nil || n != 0 {
		t.Errorf("the second run sealed %d records: %v", n, err)
	}
	alone, err := seal.FromTexts(strings.Repeat("1f", 31) + "2e")
	if err != nil {
		t.Fatal(err)
	}
	if f.Directory, err = Open(t.Context(), f.store, alone, zap.NewNop()); err != nil {
		t.Fatalf("the new key alone: %v", err)
	}
	expect(t, "a TOTP code by the new key", f.verify(t, last, f.code(t, seed, 0)), "")
	expect(t, "a backup code by the new key", f.verify(t, last, codes[0]), "")
	if secrets, err := f.callbackSecrets(t, key.ID); err != nil || len(secrets) != 1 || secrets[0] != callback {
		t.Errorf("a callback secret by the new key: %d, %v", len(secrets), err)
	}
	if _, err := Open(t.Context(), f.store, testKeyring, zap.NewNop()); err == nil {
		t.Error("the old key still opens the store")
	}
	var kept *factor.TOTP
	err = f.store.View(t.Context(), func(r storage.Reader) (err error) {
		kept, err = mustGet(r, &factor.TOTPTable, fmt.Sprintf("usr_%04d", users-1))
		return err
	})
	if err != nil || kept.LastStep != users-1 {
		t.Errorf("the rest of a record was lost: %+v, %v", kept, err)
	}
}

// TestAStoreIsSealedWithItsFirstSecret checks that a store without secrets is not bound to a master
// key.
func TestAStoreIsSealedWithItsFirstSecret(t *testing.T) {
	t.Parallel()
	for what, use := range map[string]func(f fixture, a *Account) error{
		"TOTP": func(f fixture, a *Account) error {
			return second(f.factors.SetUpTOTP(t.Context(), a.holder(), "Gate", true))
		},
		"a callback": func(f fixture, a *Account) error {
			key, _ := f.key(t, a.UserID, KeySpec{})
			return third(f.RenewCallbackSecret(t.Context(), a, key.ID))
		},
	} {
		f := newFixture(t)
		ann := f.newAccount(t, f.user(t, "ann"), false)
		if sealed, err := seal.Sealed(t.Context(), f.store); err != nil || sealed {
			t.Errorf("before %s: %v, %v", what, sealed, err)
		}
		if err := use(f, ann); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), f.store, seal.Random(), zap.NewNop()); !errors.Is(err, seal.ErrWrongKey) {
			t.Errorf("after %s, opened by another key: %v", what, err)
		}
	}
}

// TestAnInterruptedResealCanBeRunAgain interrupts a rotation, which leaves records of both keys.
func TestAnInterruptedResealCanBeRunAgain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	accounts, seeds := make([]*Account, 3), make([]string, 3)
	for i := range accounts {
		accounts[i] = f.newAccount(t, f.user(t, fmt.Sprintf("user%d", i)), false)
		seeds[i], _ = f.withTOTP(t, accounts[i])
	}
	path := filepath.Join(t.TempDir(), "modelgate.key")
	if err := os.WriteFile(path, []byte(testKeyText), 0o600); err != nil {
		t.Fatal(err)
	}
	for cut := range 5 { // one of its transactions fails
		keyring, err := seal.FromFile(t.Context(), f.store, path)
		if err != nil {
			t.Fatal(err)
		}
		if f.Directory, err = Open(t.Context(), f.store, keyring, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if err := keyring.Rotate(); err != nil {
			t.Fatal(err)
		}
		f.engine.Plan(storagetest.After(cut, storagetest.UnknownLost)...)
		if _, err := f.Reseal(t.Context()); err == nil {
			t.Fatalf("interrupted at %d, it succeeded", cut)
		}
		f.engine.Plan()
		for i, a := range accounts { // after a restart, halfway
			if keyring, err = seal.FromFile(t.Context(), f.store, path); err != nil {
				t.Fatal(err)
			}
			if f.Directory, err = Open(t.Context(), f.store, keyring, zap.NewNop()); err != nil {
				t.Fatal(err)
			}
			f.clock.Advance(30 * time.Second)
			expect(t, fmt.Sprintf("a code, interrupted at %d", cut), f.verify(t, a, f.code(t, seeds[i], 0)), "")
		}
		if _, err := f.Reseal(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := keyring.DropOld(); err != nil {
			t.Fatal(err)
		}
		for i, a := range accounts {
			f.clock.Advance(30 * time.Second)
			expect(t, fmt.Sprintf("a code by the new key alone, interrupted at %d", cut), f.verify(t, a, f.code(t, seeds[i], 0)), "")
		}
	}
}

// TestTOTPFailsWithoutTheMasterKey checks that only sealed secrets need the master key.
func TestTOTPFailsWithoutTheMasterKey(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	user := f.user(t, "ann")
	ann := f.newAccount(t, user, false)
	seed, codes := f.withTOTP(t, ann)
	v, _ := f.withPasskey(t, ann)
	f.keyring, f.factors = nil, factor.New(f.store, nil, f.Audit)
	expect(t, "a code", f.verify(t, ann, f.code(t, seed, 0)), fault.Internal)
	expect(t, "a backup code", f.verify(t, ann, codes[0]), fault.Internal)
	expect(t, "an enrolment", second(f.factors.SetUpTOTP(t.Context(), f.newAccount(t, f.user(t, "bob"), false).holder(), "Gate", true)), fault.Internal)
	if _, err := f.logInByPasskey(t, v); err != nil {
		t.Errorf("a passkey, which needs no key: %v", err)
	}
	expect(t, "fresh, without a verification", f.Fresh(t.Context(), f.newAccount(t, user, false)), fault.VerificationRequired)
}

func TestResealStopsAtAnUnreadableSecret(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	foreign, err := seal.Random().For("totp").Seal("usr_x", make([]byte, 20))
	if err != nil {
		t.Fatal(err)
	}
	err = f.store.Update(t.Context(), func(txn storage.Txn) error {
		return factor.TOTPTable.Put(txn, nil, &factor.TOTP{UserID: "usr_x", Seed: foreign})
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reseal(t.Context()); err == nil || !strings.Contains(err.Error(), "totp/usr_x") {
		t.Errorf("%v, want an error that names the record", err)
	}
}
