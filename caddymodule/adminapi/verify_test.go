package adminapi

import (
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestVerifyRefusesTheFormatOfANewerBuild(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	if err := storage.CheckFormat(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), store); err != nil {
		t.Errorf("the format of this build: %v", err)
	}
	if err := store.Update(t.Context(), func(txn storage.Txn) error {
		return storage.SetRecord(txn, []byte("meta/format"), map[string]int{"format": 99})
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := Verify(t.Context(), store); err == nil || !strings.Contains(err.Error(), "use the build that wrote it") {
		t.Errorf("the format of a newer build: %v", err)
	}
}

func TestASecondVerificationAtTheSameTimeIsRefused(t *testing.T) {
	t.Parallel()
	c := &call{Runtime: new(caddymodule.Runtime)}
	c.Verifying.Lock()
	if _, err := verifyStore(c); fault.OrInternal(err, "").Code != fault.Conflict {
		t.Errorf("while the store is verified: %v", err)
	}
}
