package ledger

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/money"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// step is one random operation on the ledger, its store or its process.
type step struct {
	do     string
	user   string
	amount money.Amount
	n      int // selects a call, hold, key, quota or order, modulo their number
	node   int // of a cluster
	faults []storagetest.Fault
}

// String writes the step as Go, to be copied into a test.
func (s step) String() string {
	return fmt.Sprintf("{do: %q, user: %q, amount: %d, n: %d, node: %d, faults: %#v},", s.do, s.user, int64(s.amount), s.n, s.node, s.faults)
}

// stepKind is how often a step is drawn and what it does to a model.
type stepKind[Model any] struct {
	weight int
	do     func(Model, step)
}

// stepKinds are the steps by name.
var stepKinds = map[string]stepKind[*model]{
	"credit":   {5, (*model).credit},
	"grant":    {2, (*model).grant},
	"purchase": {3, (*model).purchase},
	"refund":   {1, (*model).refund},
	"clear":    {1, (*model).clear},
	"order":    {2, (*model).reorder},
	"reserve":  {6, (*model).reserve},
	"grow":     {2, (*model).grow},
	"interim":  {4, (*model).interim},
	"final":    {4, (*model).final},
	"release":  {2, (*model).release},
	"hold":     {2, (*model).hold},
	"end hold": {2, (*model).endHold},
	"pass":     {2, (*model).pass},
	"fault":    {2, (*model).fault},
	"shut":     {3, (*model).shut},
	"open":     {4, (*model).open},
	"sweep":    {1, (*model).sweep},
	"restart":  {1, (*model).restart},
}

// steps draws steps. A step without a name does nothing: it is the simplest one,
// so that rapid can shrink a failing run to the steps that matter.
func steps[Model any](kinds map[string]stepKind[Model], faults []storagetest.Fault, nodes int) *rapid.Generator[[]step] {
	names := []string{""}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		names = append(names, slices.Repeat([]string{name}, kinds[name].weight)...)
	}
	draw := rapid.Custom(func(t *rapid.T) step {
		s := step{
			do:     rapid.SampledFrom(names).Draw(t, "do"),
			user:   rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"),
			amount: money.Amount(rapid.IntRange(0, 30).Draw(t, "amount")),
			n:      rapid.IntRange(0, 5).Draw(t, "n"),
			faults: rapid.SliceOfN(rapid.SampledFrom(faults), 1, 4).Draw(t, "faults"),
		}
		if nodes > 1 {
			s.node = rapid.IntRange(0, nodes-1).Draw(t, "node")
		}
		return s
	})
	return rapid.Map(rapid.SliceOfN(draw, 40, 150), func(all []step) []step {
		return slices.DeleteFunc(all, func(s step) bool { return s.do == "" })
	})
}

// faults are the faults of commits. Those that end the process are rare, so that
// most runs are long.
var faults = []storagetest.Fault{
	storagetest.None, storagetest.None, storagetest.Conflict,
	storagetest.UnknownCommitted, storagetest.UnknownCommitted, storagetest.UnknownLost,
	storagetest.LowSpace, storagetest.SyncFailed, storagetest.Halted,
}

// TestRandomStepsMatchTheModel runs random steps over a store whose commits fail,
// and compares the ledger with the model after each.
func TestRandomStepsMatchTheModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		drawn := steps(stepKinds, faults, 1).Draw(rt, "steps")
		if err := runSteps(t, drawn); err != nil {
			rt.Fatalf("%v\n%s", err, script(drawn))
		}
	})
}

// script writes steps as Go, to be copied into a test.
func script(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintln(&b, s)
	}
	return b.String()
}

// runSteps runs steps on a new model and returns the first mismatch.
func runSteps(t *testing.T, steps []step) (err error) {
	synctest.Test(t, func(t *testing.T) {
		m := newModel()
		defer m.stop()
		for i, s := range steps {
			stepKinds[s.do].do(m, s)
			synctest.Wait() // so that steps pass the gate in order
			m.checkWhenDurable()
			if m.err != nil {
				err = fmt.Errorf("step %d, %v\n%w", i, s, m.err)
				return
			}
		}
		m.finish()
		err = m.err
	})
	return err
}
