package identity

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

var testTime = time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)

// populated returns a store with n users with one key each, and the secret of the last key.
func populated(t testing.TB, n int) (*storage.Store, string) {
	t.Helper()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	var last Secret
	for from := 0; from < n; from += 1000 {
		err := store.Update(t.Context(), func(txn storage.Txn) error {
			for i := from; i < min(from+1000, n); i++ {
				id := strconv.Itoa(i)
				user := userRecord{User: User{ID: "usr_" + id, Name: "user" + id, Created: 1}}
				key := keyRecord{Key: Key{ID: "key_" + id, UserID: user.ID, Created: 1}}
				last = credential.APIKey.Draw()
				key.setSecret(last)
				if err := userTable.Put(txn, nil, &user); err != nil {
					return err
				}
				if err := keyTable.Put(txn, nil, &key); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return store, last.Reveal()
}

func TestOpenLoadsEveryCredential(t *testing.T) {
	t.Parallel()
	const users = 5000
	store, last := populated(t, users)
	d, err := Open(t.Context(), store, nil, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if d.Count() != users {
		t.Errorf("%d credentials, want %d", d.Count(), users)
	}
	if p, ok := d.Authenticate(last); !ok || p.UserID != fmt.Sprintf("usr_%d", users-1) {
		t.Errorf("%+v, %v", p, ok)
	}
}

// BenchmarkOpen measures the start of a gateway with 100,000 users with one key each.
func BenchmarkOpen(b *testing.B) {
	store, _ := populated(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Open(b.Context(), store, nil, zap.NewNop()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAuthenticate measures the authentication of a call.
func BenchmarkAuthenticate(b *testing.B) {
	store, secret := populated(b, 100_000)
	d, err := Open(b.Context(), store, nil, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := d.Authenticate(secret); !ok {
			b.Fatal("refused")
		}
	}
}

// BenchmarkChange measures a rotation in a gateway with 100,000 keys: a change copies
// one part in 256 of the table.
func BenchmarkChange(b *testing.B) {
	store, _ := populated(b, 100_000)
	d, err := Open(b.Context(), store, nil, zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := d.RotateKey(b.Context(), "operator", "key_7", time.Hour); err != nil {
			b.Fatal(err)
		}
	}
}
