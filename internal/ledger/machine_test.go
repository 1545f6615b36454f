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

// step is one thing that happens to a ledger.
type step struct {
	do     string
	user   string
	amount money.Amount
	n      int // which call, hold, key, quota or order: what there is of them is counted through
	faults []storagetest.Fault
}

// String writes the step as Go, to be copied into a test.
func (s step) String() string {
	return fmt.Sprintf("{do: %q, user: %q, amount: %d, n: %d, faults: %#v},", s.do, s.user, int64(s.amount), s.n, s.faults)
}

// stepKinds are the steps by name, and how often each is drawn.
var stepKinds = map[string]struct {
	often int
	do    func(*world, step)
}{
	"credit":   {5, (*world).credit},
	"grant":    {2, (*world).grant},
	"purchase": {3, (*world).purchase},
	"refund":   {1, (*world).refund},
	"clear":    {1, (*world).clear},
	"order":    {2, (*world).reorder},
	"reserve":  {6, (*world).reserve},
	"grow":     {2, (*world).grow},
	"interim":  {4, (*world).interim},
	"final":    {4, (*world).final},
	"release":  {2, (*world).release},
	"hold":     {2, (*world).hold},
	"end hold": {2, (*world).endHold},
	"pass":     {2, (*world).pass},
	"fault":    {2, (*world).fault},
	"shut":     {3, (*world).shut},
	"open":     {4, (*world).open},
	"sweep":    {1, (*world).sweep},
	"restart":  {1, (*world).restart},
}

// steps draws what happens. To do nothing is the simplest step, so that of a long
// story that goes wrong only what matters is left.
func steps() *rapid.Generator[[]step] {
	names := []string{""}
	for _, name := range slices.Sorted(maps.Keys(stepKinds)) {
		names = append(names, slices.Repeat([]string{name}, stepKinds[name].often)...)
	}
	one := rapid.Custom(func(t *rapid.T) step {
		return step{
			do:     rapid.SampledFrom(names).Draw(t, "do"),
			user:   rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"),
			amount: money.Amount(rapid.IntRange(0, 30).Draw(t, "amount")),
			n:      rapid.IntRange(0, 5).Draw(t, "n"),
			faults: rapid.SliceOfN(rapid.SampledFrom(faults), 1, 4).Draw(t, "faults"),
		}
	})
	return rapid.Map(rapid.SliceOfN(one, 40, 150), func(all []step) []step {
		return slices.DeleteFunc(all, func(s step) bool { return s.do == "" })
	})
}

// faults are what may go wrong with a commit; what ends the process is rare, for
// little can be seen of a short life.
var faults = []storagetest.Fault{
	storagetest.None, storagetest.None, storagetest.Conflict,
	storagetest.UnknownCommitted, storagetest.UnknownCommitted, storagetest.UnknownLost,
	storagetest.LowSpace, storagetest.SyncFailed, storagetest.Halted,
}

// TestWhateverHappensTheMoneyAddsUp drives a ledger through random steps, over a
// store whose commits go wrong, and holds it against a plain account of what
// must have come of them.
func TestWhateverHappensTheMoneyAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		drawn := steps().Draw(rt, "steps")
		if err := play(t, drawn); err != nil {
			var script strings.Builder
			for _, s := range drawn {
				fmt.Fprintln(&script, s)
			}
			rt.Fatalf("%v\n%s", err, script.String())
		}
	})
}

// play runs steps in a world of its own, with a time of its own.
func play(t *testing.T, steps []step) (err error) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		defer w.end()
		for i, s := range steps {
			stepKinds[s.do].do(w, s)
			synctest.Wait() // so that the order of what waits for the gate is that of the steps
			w.look()
			if w.err != nil {
				err = fmt.Errorf("step %d, %v\n%w", i, s, w.err)
				return
			}
		}
		// At the end everything that is open ends, and nothing is left over.
		w.finish()
		err = w.err
	})
	return err
}
