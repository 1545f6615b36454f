package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestVerifyGoesOnPastAnythingThatCannotBeRead damages each record of a store in
// turn, and an index beside it: Verify tells of that, too.
func TestVerifyGoesOnPastAnythingThatCannotBeRead(t *testing.T) {
	in(t, func(w *world) {
		f := w.town()
		w.damaged = true
		w.Engine.Close(context.Background())
		ctx := context.Background()
		set := func(key, val []byte) {
			t.Helper()
			if err := w.store.Update(ctx, func(t storage.Txn) error { return t.Set(key, val, time.Time{}) }); err != nil {
				t.Fatal(err)
			}
		}
		records := make(map[string][]byte)
		err := errors.Join(
			w.store.Update(ctx, func(t storage.Txn) error { return lose(atFailed, endPrefix)(t, f) }),
			w.store.View(ctx, func(r storage.Reader) error {
				return r.Scan([]byte{0}, []byte{0xff}, func(key, val []byte) bool {
					if len(val) > 0 {
						records[string(key)] = bytes.Clone(val)
					}
					return true
				})
			}))
		if err != nil {
			t.Fatal(err)
		}
		for key, val := range records {
			harmed := bytes.Clone(val)
			harmed[0] ^= 0x40
			set([]byte(key), harmed)
			var found []string
			tell := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
			err := w.store.View(ctx, func(r storage.Reader) error {
				_, err := ledger.Verify(ctx, r, time.Now(), func(p ledger.Problem) { tell("%s: %s", p.Where, p.What) },
					func(r storage.Reader, _ func(ledger.Problem)) error { return Verify(r, time.Now(), tell) })
				return err
			})
			if planted := strings.Contains(strings.Join(found, "\n"), "which leads to it, is missing"); err != nil || !planted && !strings.Contains(key, f.failed) {
				t.Errorf("with %q damaged: %v, found\n%s", key, err, strings.Join(found, "\n"))
			}
			set([]byte(key), val)
		}
	})
}
