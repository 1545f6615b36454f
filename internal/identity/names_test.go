package identity

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// readCounter is an engine that counts what is read.
type readCounter struct {
	storage.Engine
	gets, scans int
}

func (c *readCounter) View(ctx context.Context, fn func(storage.Reader) error) error {
	return c.Engine.View(ctx, func(r storage.Reader) error { return fn(countingReader{r, c}) })
}

type countingReader struct {
	storage.Reader
	*readCounter
}

func (r countingReader) Get(key []byte) ([]byte, error) {
	r.gets++
	return r.Reader.Get(key)
}

func (r countingReader) Scan(lo, hi []byte, fn func(key, val []byte) bool) error {
	r.scans++
	return r.Reader.Scan(lo, hi, fn)
}

func TestNamesReadOnlyTheUsersThatTheyAreOf(t *testing.T) {
	t.Parallel()
	engine := &readCounter{Engine: memory.New()}
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
	engine.gets, engine.scans = 0, 0
	names, err := d.Names(t.Context(), slices.Values(append(ids, ids...)))
	if err != nil || !maps.Equal(names, want) {
		t.Errorf("the names are %v, %v", names, err)
	}
	if engine.gets > 5 || engine.scans > 0 {
		t.Errorf("%d records were read, and %d lists", engine.gets, engine.scans)
	}
}
