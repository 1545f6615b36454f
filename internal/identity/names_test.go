package identity

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestNamesReadOnlyTheUsersThatTheyAreOf(t *testing.T) {
	t.Parallel()
	engine := &storagetest.Counted{Engine: memory.New()}
	store := storage.New(engine, storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	d, err := Open(t.Context(), store, testKeyring, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for i := range 200 {
		user, err := d.CreateUser(t.Context(), "operator", fmt.Sprintf("user-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			want[user.ID] = user.Name
		}
	}
	ids := append(slices.Collect(maps.Keys(want)), "user-7", "operator", "", "usr_unknown") // a name is no id
	engine.Reads.Store(0)
	names, err := d.Names(t.Context(), slices.Values(append(ids, ids...)))
	if err != nil || !maps.Equal(names, want) {
		t.Errorf("the names are %v, %v", names, err)
	}
	if reads := engine.Reads.Load(); reads > 5 {
		t.Errorf("%d records were read", reads)
	}
}

func TestUsersAreCountedUpToALimit(t *testing.T) {
	t.Parallel()
	engine := &storagetest.Counted{Engine: memory.New()}
	store := storage.New(engine, storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	d, err := Open(t.Context(), store, testKeyring, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		if _, err := d.CreateUser(t.Context(), "operator", fmt.Sprintf("user-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for limit, want := range map[int]int{1: 1, 49: 49, 50: 50, 51: 50, 1000: 50} {
		engine.Reads.Store(0)
		if n, err := d.CountUsers(t.Context(), limit); err != nil || n != want {
			t.Errorf("up to %d users, there are %d, %v", limit, n, err)
		}
		if reads := engine.Reads.Load(); reads > int64(limit)+1 {
			t.Errorf("up to %d users, %d keys were read", limit, reads)
		}
	}
}
