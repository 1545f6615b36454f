package task

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// TestVerifyGoesOnPastAHoldThatCannotBeRead damages what a hold is written in, and an
// index beside it: Verify tells of both.
func TestVerifyGoesOnPastAHoldThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]func(f four) []byte{
		"the transfer of an open hold": func(f four) []byte {
			id := holdID(f.running)
			return append([]byte("xfer/"), id[:]...)
		},
		"the transfer of an ended hold": func(f four) []byte {
			id := holdID(f.success)
			return append([]byte("xfer/"), id[:]...)
		},
		"the record of an ended hold": func(f four) []byte {
			id := holdID(f.success)
			return append([]byte("hold/"+ann+"/"), id[:]...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(w *world) {
				f := w.town()
				w.damaged = true
				w.Engine.Close(context.Background())
				err := w.store.Update(context.Background(), func(t storage.Txn) error {
					val, err := t.Get(key(f))
					if err != nil || val == nil {
						return errors.Join(err, errors.New("nothing there"))
					}
					val = append([]byte(nil), val...)
					val[0] ^= 0x40
					return errors.Join(t.Set(key(f), val, time.Time{}), lose(atFailed, endPrefix)(t, f))
				})
				if err != nil {
					t.Fatal(err)
				}
				var found []string
				err = w.store.View(context.Background(), func(r storage.Reader) error {
					_, err := ledger.Verify(context.Background(), r, time.Now(), func(p ledger.Problem) { found = append(found, p.Where+": "+p.What) }, func(r storage.Reader, problem func(ledger.Problem)) error {
						return Verify(r, time.Now(), func(format string, args ...any) { found = append(found, format) })
					})
					return err
				})
				if err != nil || !strings.Contains(strings.Join(found, "\n"), "which leads to it") {
					t.Errorf("%v\n%s", err, strings.Join(found, "\n"))
				}
			})
		})
	}
}
