package ledger

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// withoutHolds returns an engine for a node whose calls set nothing aside in the store.
func withoutHolds(e storage.Engine) storage.Engine { return holdless{e} }

type holdless struct{ storage.Engine }

func (h holdless) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return h.Engine.Update(ctx, func(t storage.Txn) error { return fn(holdlessTxn{t}) })
}

type holdlessTxn struct{ storage.Txn }

func (t holdlessTxn) Set(key, val []byte, purge time.Time) error {
	if bytes.HasPrefix(key, storage.Key(journal.CallHoldName)) {
		return nil
	}
	if bytes.HasPrefix(key, []byte(journal.AccountPrefix)) {
		state, err := journal.DecodeState(val)
		if err != nil {
			return err
		}
		if state.Reserved = 0; state == (journal.State{}) {
			return t.Delete(key)
		}
		val = state.Encode()
	}
	return t.Txn.Set(key, val, purge)
}

// clusterControls are the rules of a cluster, each with an engine that breaks it, steps that need it, and
// what the model must find without it.
var clusterControls = map[string]struct {
	broken func(storage.Engine) storage.Engine
	steps  []step
	found  []string
}{
	"the fence": {
		storagetest.WithoutFence,
		[]step{
			{do: "reserve", user: "ann", amount: 19, node: 0},
			{do: "stop", node: 0},
			{do: "final", amount: 20},
			{do: "pass", n: 5}, // another node ends the epoch and releases the hold
			{do: "purchase", user: "ann", n: 4, node: 2},
			{do: "resume", node: 0},
		},
		[]string{"a node has committed after its epoch had ended", "was charged after its epoch had ended", "promised money that its wallet did not have"},
	},
	"the durable hold of a call": {
		withoutHolds,
		[]step{
			{do: "reserve", user: "ann", amount: 19, node: 0},
			{do: "reserve", user: "ann", amount: 19, node: 1},
		},
		[]string{"has 20, and 40 of it are promised"},
	},
	"the outcome of a commit": {
		storagetest.UnknownAsFailed,
		[]step{
			{do: "pass", n: 0}, // otherwise a beat has the fault
			{do: "fault", node: 0, faults: []storagetest.Fault{storagetest.UnknownCommitted}},
			{do: "credit", user: "ann", amount: 9, node: 0},
		},
		[]string{"a credit was told as failed and has happened"},
	},
}

// TestControlsOfTheCluster breaks the rules of a cluster one by one. The model must find it with the steps
// of the control and with random ones, and histories of wallets must find it, too.
func TestControlsOfTheCluster(t *testing.T) {
	t.Parallel()
	for name, c := range clusterControls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := runClusterSteps(t, nil, c.steps); err != nil {
				t.Errorf("with the rule: %v", err)
			}
			err := runClusterSteps(t, c.broken, c.steps)
			for _, want := range c.found {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("without the rule: %v, want %q", err, want)
				}
			}
			t.Logf("without the rule: %v", err)
			found := func(what string, run func(n int) error) {
				for n := range 100 {
					if err := run(n); err != nil {
						t.Logf("%s, run %d found: %v", what, n+1, err)
						return
					}
				}
				t.Errorf("%s found nothing", what)
			}
			found("random steps", func(n int) error {
				return runClusterSteps(t, c.broken, steps(clusterSteps, clusterFaults, 3).Example(n))
			})
			found("histories of wallets", func(n int) error {
				return checkHistories(runWalletHistory(t, c.broken, uint64(n))) //nolint:gosec // not negative
			})
		})
	}
}
