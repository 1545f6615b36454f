package identity

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"runtime/metrics"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/identity/credential"
	"github.com/caddy-modelgate/modelgate/internal/identity/password"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/badger"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

var (
	scaleUsers    = flag.Int("people.users", 500, "how many users the large store has")
	scaleSessions = flag.Int("people.sessions", 10, "how many sessions each of them has")
)

// openBadger opens a Badger store in a directory.
func openBadger(t testing.TB, dir string) *storage.Store {
	t.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	defer cancel()
	module := &badger.Badger{Path: dir}
	if err := module.Provision(ctx); err != nil {
		t.Fatal(err)
	}
	engine, err := module.Open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return storage.New(engine, storage.Options{})
}

// fillStore fills a store with users, who have a key and some sessions each. It returns the
// secret of one session of every thousandth user.
func fillStore(t testing.TB, store *storage.Store, users, sessions int) []Secret {
	t.Helper()
	const batch = 100 // users in one transaction
	d := &Directory{store: store}
	var known []Secret
	for from := 0; from < users; from += batch {
		err := store.Update(context.Background(), func(txn storage.Txn) error {
			for i := from; i < min(from+batch, users); i++ {
				user := userRecord{User: User{ID: "usr_" + strconv.Itoa(i), Name: "user" + strconv.Itoa(i), Created: 1}, Password: password.None.String()}
				key := keyRecord{Key: Key{ID: "key_" + strconv.Itoa(i), UserID: user.ID, Created: 1}}
				key.setSecret(credential.APIKey.Draw())
				if err := addUser(txn, user, user.Name); err != nil {
					return err
				}
				if err := keyTable.Put(txn, nil, &key); err != nil {
					return err
				}
				for n := range sessions {
					entry, err := d.openSession(txn, user.ID, testDevice, testTerms, false)
					if err != nil {
						return err
					}
					if i%1000 == 0 && n == 0 {
						known = append(known, entry.Secret)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return known
}

// TestAStoreOfManyUsers opens a store of many users and sessions. It logs the time of opening and
// of a look-up. Sessions are only in the store, so neither depends on
// their number. For the documented numbers, run:
//
//	go test -run ManyUsers -v -args -people.users 100000 -people.sessions 10
func TestAStoreOfManyUsers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := openBadger(t, dir)
	began := time.Now()
	known := fillStore(t, store, *scaleUsers, *scaleSessions)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d users and %d sessions were created in %s", *scaleUsers, *scaleUsers**scaleSessions, time.Since(began).Round(time.Millisecond))

	began = time.Now()
	store = openBadger(t, dir)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	engine := time.Since(began)
	d, err := Open(t.Context(), store, testKeyring, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(began)
	runtime.GC()
	began = time.Now()
	runtime.GC()
	t.Logf("a collection takes %s", time.Since(began))
	t.Logf("opened in %s, of which the engine took %s", opened.Round(time.Millisecond), engine.Round(time.Millisecond))
	if d.Count() != *scaleUsers {
		t.Errorf("%d credentials, want %d", d.Count(), *scaleUsers)
	}
	const times = 200
	began = time.Now()
	for range times {
		for _, secret := range known {
			if _, ok, err := d.AuthenticateSession(t.Context(), secret.Reveal()); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
	}
	t.Logf("a session is read in %s", time.Since(began)/time.Duration(times*len(known)))
}

// BenchmarkAuthenticateSession measures the authentication of a request to the console, in a
// store of 10,000 sessions.
func BenchmarkAuthenticateSession(b *testing.B) {
	for name, store := range map[string]*storage.Store{
		"memory": storage.New(memory.New(), storage.Options{}),
		"badger": openBadger(b, b.TempDir()),
	} {
		b.Cleanup(func() { _ = store.Close() })
		known := fillStore(b, store, 1000, 10)
		d, err := Open(b.Context(), store, testKeyring, zap.NewNop())
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok, err := d.AuthenticateSession(b.Context(), known[0].Reveal()); err != nil || !ok {
					b.Fatal(ok, err)
				}
			}
		})
	}
}

// BenchmarkLogin measures log-ins with real hashes and the maximum possible concurrency. It
// reports the maximum memory in use.
func BenchmarkLogin(b *testing.B) {
	f := newFixture(b)
	f.userWithPassword(b, "ann")
	terms := testTerms
	terms.LoginLimits = LoginLimits{PerUser: MaxLoginLimit, PerAddress: MaxLoginLimit}
	var most atomic.Uint64
	b.SetParallelism(password.MaxAnonymous / runtime.GOMAXPROCS(0))
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			if _, err := f.Login(b.Context(), "ann", goodPassword, address(n), terms); err != nil {
				b.Error(fmt.Errorf("log-in: %w", err))
				return
			}
			for now, m := heap(), most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
		}
	})
	b.ReportMetric(float64(most.Load()>>20), "MiB-at-most")
}

// heap returns the size of all objects on the heap in bytes, including garbage that is not collected
// yet.
func heap() uint64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
