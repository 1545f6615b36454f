package record

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// TestLatestOfAllMatchesAModel lists tasks of users whose ids are prefixes of other ids.
// The numbers of tasks are near the limits of one read. Some keys are malformed.
func TestLatestOfAllMatchesAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := storage.New(memory.New(), storage.Options{})
		defer store.Close()
		names := []string{"", "a", "a!", "a-", "a0", "aa", "a\xff", "\xff", "\x00", "u", "user_1", "user_10", "user_2"}
		var tasks []*Record
		var malformed [][]byte
		for i, user := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 8, rapid.ID[string]).Draw(t, "users") {
			for n := range rapid.SampledFrom([]int{0, 1, 2, 23, 24, 25, 26, 47, 48, 49, 60, 300}).Draw(t, "tasks") {
				id := fmt.Sprintf("task_%013d%013d", i, n)
				tasks = append(tasks, &Record{ID: id, User: user, Key: "k" + user, Created: rapid.Int64Range(0, 50).Draw(t, "created")})
			}
			for range rapid.SampledFrom([]int{0, 0, 1, 24, 30, 50}).Draw(t, "malformed") {
				tail := rapid.SliceOfN(rapid.Byte(), 0, 45).Draw(t, "tail")
				if len(tail) == tailSize {
					continue
				}
				list, _ := storage.Below(OfUserPrefix, user)
				if rapid.Bool().Draw(t, "of no user") && !bytes.Contains(tail, []byte("/")) {
					list = storage.Key(OfUserPrefix, user)
				}
				malformed = append(malformed, append(list, tail...))
			}
		}
		update := func(fn func(t storage.Txn) error) {
			if err := store.Update(context.Background(), fn); err != nil {
				t.Fatal(err)
			}
		}
		for batch := range slices.Chunk(tasks, 300) {
			update(func(t storage.Txn) (err error) {
				for _, rec := range batch {
					if err = Tasks.Put(t, nil, rec); err != nil {
						break
					}
				}
				return err
			})
		}
		update(func(t storage.Txn) (err error) {
			for _, key := range malformed {
				if err = t.Set(key, nil, time.Time{}); err != nil {
					break
				}
			}
			return err
		})
		latestFirst(tasks)
		begin := rapid.IntRange(0, len(tasks)).Draw(t, "begin")
		got, err := idsBehind(store, Anyone, tasks[:begin])
		// A malformed key may look like a key in the list of another user.
		known := idsOf(tasks)
		got = slices.DeleteFunc(got, func(id string) bool { return !slices.Contains(known, id) })
		if want := idsOf(tasks[begin:]); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d tasks, %v; want %d", len(got), err, len(want))
		}
	})
}
