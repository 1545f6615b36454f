package memory_test

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

func TestEngine(t *testing.T) {
	t.Parallel()
	storagetest.Run(t, func(*testing.T) storage.Engine { return memory.New() })
}
