package storagetest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/storage"
)

// matchesModel runs random transactions, some of which fail, against the engine
// and a map, and compares both at every step.
func matchesModel(t *testing.T, e transactor) {
	var runs atomic.Int64 // each run has its own range of keys
	rapid.Check(t, func(rt *rapid.T) {
		prefix := fmt.Sprintf("run%06d/", runs.Add(1))
		lo, hi := []byte(prefix), []byte(prefix+"\xff")
		key := rapid.Map(rapid.StringMatching(`[a-d]{1,2}`), func(s string) string { return prefix + s })
		committed := map[string]string{}
		aborted := errors.New("aborted")

		for range rapid.IntRange(1, 6).Draw(rt, "transactions") {
			ops := rapid.SliceOfN(operations(key), 0, 10).Draw(rt, "operations")
			fails := rapid.IntRange(0, 4).Draw(rt, "fails") == 0

			var model map[string]string
			err := retrying(t.Context(), e, func(txn storage.Txn) error {
				model = maps.Clone(committed)
				for _, op := range ops {
					if err := op.perform(txn, model); err != nil {
						return err
					}
				}
				if fails {
					return aborted
				}
				return nil
			})
			switch {
			case err == nil:
				committed = model
			case err != aborted:
				rt.Fatal(err)
			}
			err = e.View(t.Context(), func(r storage.Reader) error {
				return holds(r, lo, hi, sorted(committed, "", "")...)
			})
			if err != nil {
				rt.Fatal(err)
			}
		}
	})
}

// operation is one step of a random transaction.
type operation struct {
	kind, key, arg, end string
}

// operations returns a generator of steps on keys.
func operations(key *rapid.Generator[string]) *rapid.Generator[operation] {
	return rapid.Custom(func(rt *rapid.T) operation {
		return operation{
			kind: rapid.SampledFrom([]string{"set", "set", "delete", "get", "scan"}).Draw(rt, "kind"),
			key:  key.Draw(rt, "key"),
			arg:  rapid.StringN(0, 8, -1).Draw(rt, "value"),
			end:  key.Draw(rt, "end"),
		}
	})
}

// perform performs the operation on both and compares the results.
func (op operation) perform(txn storage.Txn, model map[string]string) error {
	switch op.kind {
	case "set":
		model[op.key] = op.arg
		return txn.Set([]byte(op.key), []byte(op.arg), never)
	case "delete":
		delete(model, op.key)
		return txn.Delete([]byte(op.key))
	case "scan":
		return holds(txn, []byte(op.key), []byte(op.end), sorted(model, op.key, op.end)...)
	}
	if want, ok := model[op.key]; ok {
		return has(txn, op.key, want)
	}
	return lacks(txn, op.key)
}

// sorted returns the keys in [lo, hi) and their values, alternating. An empty
// hi means the end.
func sorted(model map[string]string, lo, hi string) []string {
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(model)) {
		if key >= lo && (hi == "" || key < hi) {
			pairs = append(pairs, key, model[key])
		}
	}
	return pairs
}
