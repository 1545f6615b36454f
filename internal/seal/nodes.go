package seal

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// On a shared store, every node must be able to decrypt what another one encrypts. So each node records
// the ids of its master keys, and a key encrypts only when all live nodes have it. A node without a
// record is starting: it verifies and records its keys before it serves requests.

// ErrOtherNodes means that another node of the store lacks the newest master key, or
// does not encrypt with it yet.
var ErrOtherNodes = errors.New("another gateway does not have the newest master key, or not as its first one: " +
	"add it after the present key on every gateway, then put it first on every gateway, then rotate")

// nodeKeys has the ids of the master keys of a node.
type nodeKeys struct {
	Epoch int64    `json:"epoch"` // of the node
	IDs   []string `json:"ids"`   // newest first
}

var nodeTable = table.Table[nodeKeys]{
	Name: "sealnode",
	Key:  func(n *nodeKeys) table.Key { return table.Key{n.Epoch} },
}

// Open is [Keyring.Verify] at the start of a process. On a shared store it also records the keys of the
// node.
func (k *Keyring) Open(ctx context.Context, store *storage.Store) error {
	if !store.Shared() {
		return k.Verify(ctx, store)
	}
	return store.Update(ctx, func(t storage.Txn) error {
		if _, _, err := k.verify(t); err != nil {
			return err
		}
		return k.publish(t, store)
	})
}

// BeginRenew is [Keyring.Check] before all secrets are encrypted again with the newest key. On a shared
// store it returns [ErrOtherNodes] unless every live node encrypts with that key.
func (k *Keyring) BeginRenew(ctx context.Context, store *storage.Store) error {
	if err := k.Check(ctx, store); err != nil {
		return err
	}
	return store.View(ctx, func(r storage.Reader) error { return k.known(r, store, true) })
}

// publish records the keys of this node if the store is shared, and removes the records of ended nodes.
func (k *Keyring) publish(t storage.Txn, store *storage.Store) error {
	if !store.Shared() {
		return nil
	}
	mine := &nodeKeys{Epoch: store.Epoch()}
	for _, key := range k.all() {
		mine.IDs = append(mine.IDs, hex.EncodeToString(key.id[:]))
	}
	var ended []int64
	for n, err := range nodeTable.Scan(t, nodeTable.Under()) {
		if err != nil {
			return err
		}
		over, err := storage.HasEnded(t, n.Epoch)
		switch {
		case err != nil:
			return err
		case over:
			ended = append(ended, n.Epoch)
		case n.Epoch == mine.Epoch && slices.Equal(n.IDs, mine.IDs):
			return nil
		}
	}
	for _, epoch := range ended {
		if err := nodeTable.Delete(t, epoch); err != nil {
			return err
		}
	}
	return nodeTable.Put(t, nil, mine)
}

// known returns [ErrOtherNodes] unless every live node has the newest key; if first is true, unless it is
// also the newest key of each of them.
func (k *Keyring) known(r storage.Reader, store *storage.Store, first bool) error {
	list := k.all()
	if !store.Shared() || len(list) == 0 {
		return nil
	}
	newest := hex.EncodeToString(list[0].id[:])
	for n, err := range nodeTable.Scan(r, nodeTable.Under()) {
		if err != nil {
			return err
		}
		i := slices.Index(n.IDs, newest)
		if i == 0 || i > 0 && !first {
			continue
		}
		ended, err := storage.HasEnded(r, n.Epoch)
		if err == nil && !ended {
			err = fmt.Errorf("%w: epoch %d of `node list`", ErrOtherNodes, n.Epoch)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
