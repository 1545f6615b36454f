package billing

import (
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/billing/records"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestVerifyDoesNotReportAnUnreadableQuotaAsMissing checks unreadable periods. If they were reported
// as missing, an operator would grant the quota again.
func TestVerifyDoesNotReportAnUnreadableQuotaAsMissing(t *testing.T) {
	t.Parallel()
	f, _, _ := newRichFixture(t)
	f.damaged = true
	var keys [][]byte
	f.must(f.store.View(t.Context(), func(r storage.Reader) (err error) {
		keys, err = records.Periods.Under().Keys(r, 100)
		return err
	}))
	if len(keys) == 0 {
		t.Fatal("the store has no periods")
	}
	for _, key := range keys {
		f.must(f.store.Update(t.Context(), func(t storage.Txn) error { return t.Set(key, []byte("\x01{"), time.Time{}) }))
	}
	found := strings.Join(f.problems(), "\n")
	if !strings.Contains(found, "cannot be read") || strings.Contains(found, "was not granted") {
		t.Errorf("Check reports\n%s", found)
	}
}
