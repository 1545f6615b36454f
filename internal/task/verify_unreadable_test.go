package task

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	ledgerverify "github.com/caddy-modelgate/modelgate/internal/ledger/verify"

	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/internal/task/verify"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/storagetest"
)

// TestVerifyContinuesAfterUnreadableRecords damages each record of a store in turn. Verify must also
// report a missing index key.
func TestVerifyContinuesAfterUnreadableRecords(t *testing.T) {
	withFixture(t, func(f *fixture) {
		ids := f.fourTasks()
		f.damaged = true
		ctx := context.Background()
		f.Engine.Close(ctx)
		if err := f.store.Update(ctx, func(t storage.Txn) error { return deleteKey(atFailed, record.EndPrefix)(t, ids) }); err != nil {
			t.Fatal(err)
		}
		storagetest.DamageEach(t, f.store, func(key string) {
			var found []string
			report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
			err := f.store.View(ctx, func(r storage.Reader) error {
				_, err := ledgerverify.Verify(ctx, r, time.Now(), func(p ledgerverify.Problem) { report("%s: %s", p.Where, p.What) },
					func(r storage.Reader, _ func(ledgerverify.Problem)) error { return verify.Tasks(r, time.Now(), report) })
				return err
			})
			all := strings.Join(found, "\n")
			if reported := strings.Contains(all, "its key of taskend is missing"); err != nil || !reported && !strings.Contains(key, ids.failed) {
				t.Errorf("with %q damaged: %v, found\n%s", key, err, all)
			}
		})
	})
}
