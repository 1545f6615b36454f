package task

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"pgregory.net/rapid"
)

func TestAListOfAllIsThatOfAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := storage.New(memory.New(), storage.Options{})
		defer store.Close()
		users := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"", "a", "a!", "a-", "a0", "aa", "a\xff", "\xff", "\x00", "u", "user_1", "user_10", "user_2"}), 1, 8, rapid.ID[string]).Draw(t, "users")
		var tasks []*record
		var odd [][]byte
		for i, u := range users {
			n := rapid.SampledFrom([]int{0, 1, 2, 23, 24, 25, 26, 47, 48, 49, 60, 300}).Draw(t, fmt.Sprint("n", i))
			for k := range n {
				tasks = append(tasks, &record{ID: fmt.Sprintf("task_%s", fmt.Sprintf("%010d%010d%06d", i, k, 0)), User: u, Key: "k" + u, Created: rapid.Int64Range(0, 50).Draw(t, "c")})
			}
			for range rapid.SampledFrom([]int{0, 0, 1, 24, 30, 50}).Draw(t, "odd") {
				tail := rapid.SliceOfN(rapid.Byte(), 0, 45).Draw(t, "tail")
				if len(tail) == tailSize {
					continue
				}
				if rapid.Bool().Draw(t, "noslash") && !bytes.Contains(tail, []byte("/")) {
					odd = append(odd, append(storage.Key(ofUserPrefix, u), tail...))
				} else {
					odd = append(odd, append(prefixOf(ofUserPrefix, u), tail...))
				}
			}
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for batch := range slices.Chunk(tasks, 300) {
			must(store.Update(context.Background(), func(x storage.Txn) error {
				for _, rec := range batch {
					if err := write(x, nil, rec); err != nil {
						return err
					}
				}
				return nil
			}))
		}
		must(store.Update(context.Background(), func(x storage.Txn) error {
			for _, k := range odd {
				if err := x.Set(k, nil, time.Time{}); err != nil {
					return err
				}
			}
			return nil
		}))
		slices.SortFunc(tasks, func(a, b *record) int { return cmp.Or(cmp.Compare(b.Created, a.Created), cmp.Compare(a.ID, b.ID)) })
		begin := rapid.IntRange(0, len(tasks)).Draw(t, "begin")
		var from []byte
		if begin > 0 {
			from = append(tasks[begin-1].tail(), 0)
		}
		var got, want []string
		for _, rec := range tasks[begin:] {
			want = append(want, rec.ID)
		}
		must(store.View(context.Background(), func(r storage.Reader) error {
			return latest(r, Anyone, from, func(id string) (bool, error) { got = append(got, id); return true, nil })
		}))
		// an odd key may form the list of another user of right length: leave those ids out
		got = slices.DeleteFunc(got, func(id string) bool { return !slices.ContainsFunc(tasks, func(r *record) bool { return r.ID == id }) })
		if !slices.Equal(got, want) {
			t.Fatalf("got %d want %d", len(got), len(want))
		}
	})
}
