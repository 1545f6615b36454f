package storage_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storagetest.RunStore(t, func(*testing.T) storage.Engine { return memory.New() })
}
