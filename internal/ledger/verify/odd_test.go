package verify

import (
	"context"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestVerifyReadsInvalidKeysAndRecords(t *testing.T) {
	for _, prefix := range []string{journal.AccountPrefix, journal.EntryPrefix, journal.TransferPrefix, "hold/", journal.CallPrefix, journal.OpenCallPrefix, "usage/", "idem/", "meta/calls"} {
		for _, tail := range []string{"", "x", "/", "u/", "u/x", "u/x/", "x/", "x/y", "s/", "s/x", "s/x/", "s/spent/2030-01-01", "\x00", "u/x\x00", "u/x/wallet\x0012345678", "x/0123456789abcdef", "x/0123456789abcdefg", "0123456789abcdef", "0123456789abcdefg"} {
			for _, val := range []string{"", "x", "\x01{", "\x01{}", "\x01null", "\x02", "\x02\x01", "\x01\"x\""} {
				func() {
					defer func() {
						if p := recover(); p != nil {
							t.Errorf("%q%q = %q: panic: %v", prefix, tail, val, p)
						}
					}()
					store := storage.New(memory.New(), storage.Options{})
					defer store.Close()
					if err := store.Update(context.Background(), func(x storage.Txn) error { return x.Set([]byte(prefix+tail), []byte(val), time.Time{}) }); err != nil {
						t.Fatal(err)
					}
					err := store.View(context.Background(), func(r storage.Reader) error {
						_, err := Verify(context.Background(), r, time.Now(), func(Problem) {})
						return err
					})
					if err != nil {
						t.Errorf("%q%q = %q: Verify returned %v", prefix, tail, val, err)
					}
				}()
			}
		}
	}
}
