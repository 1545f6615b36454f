package billing

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestVerifySaysNothingOfQuotaThatItCouldNotRead: if an unreadable quota were reported as
// missing, an operator would grant it again.
func TestVerifySaysNothingOfQuotaThatItCouldNotRead(t *testing.T) {
	t.Parallel()
	f, _, _ := rich(t)
	f.damaged = true
	var keys [][]byte
	f.must(f.store.View(t.Context(), func(r storage.Reader) (err error) {
		keys, err = records.Periods.Under().Keys(r, 100)
		return err
	}))
	if len(keys) == 0 {
		t.Fatal("there are no periods")
	}
	for _, key := range keys {
		f.must(f.store.Update(t.Context(), func(t storage.Txn) error { return t.Set(key, []byte("\x01{"), time.Time{}) }))
	}
	found := strings.Join(f.problems(), "\n")
	if !strings.Contains(found, "cannot be read") || strings.Contains(found, "was not granted") {
		t.Errorf("found\n%s", found)
	}
}
