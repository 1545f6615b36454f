package identity

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// seenAtOnce returns an engine for a node that says it has read all changes, so that revocations do not
// wait for it.
func seenAtOnce(e storage.Engine) storage.Engine { return hasty{e} }

type hasty struct{ storage.Engine }

func (h hasty) Update(ctx context.Context, fn func(storage.Txn) error) error {
	return h.Engine.Update(ctx, func(t storage.Txn) error { return fn(hastyTxn{t}) })
}

type hastyTxn struct{ storage.Txn }

func (t hastyTxn) Set(key, val []byte, purge time.Time) error {
	if bytes.HasPrefix(key, storage.Key("node", "at")) {
		var n storage.Node
		if err := storage.DecodeRecord(val, &n); err != nil {
			return err
		}
		n.Seen = 1 << 60
		return storage.SetRecord(t.Txn, key, n)
	}
	return t.Txn.Set(key, val, purge)
}

// TestControlsOfKeys breaks the rules by which a revocation is in force everywhere, one by one. Histories of
// keys must find it.
func TestControlsOfKeys(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(storage.Engine) storage.Engine{
		"the fence":               storagetest.WithoutFence,
		"the outcome of a commit": storagetest.UnknownAsFailed,
		"the wait for all nodes":  seenAtOnce,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(50) {
				if _, err := runKeyHistory(t, broken, seed); err != nil {
					t.Logf("history %d: %v", seed+1, err)
					return
				}
			}
			t.Error("no history has found it")
		})
	}
}
