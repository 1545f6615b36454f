package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

func TestScanTransfersKeepsNoSnapshotOpen(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	l, err := Open(t.Context(), store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(t.Context()) })
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	book := func(number int, at time.Time) journal.ID {
		id := journal.IDOf(fmt.Sprint(number))
		err := store.Update(t.Context(), func(tx storage.Txn) error {
			_, err := journal.Book(tx, at, journal.Transfer{
				ID: id, Kind: journal.Credit, User: "usr_1", Reason: string(make([]byte, 1000)),
				Legs: journal.LegsBetween(journal.Operator, journal.Wallet("usr_1"), 1),
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const n = 1000 // one megabyte, which is several batches
	want := make(map[journal.ID]bool)
	for i := range n {
		want[book(i, day.Add(time.Duration(i)*time.Second))] = true
	}
	book(-1, day.Add(-time.Millisecond))
	book(-2, day.AddDate(0, 0, 1))
	more := n
	err = l.ScanTransfers(t.Context(), day, day.AddDate(0, 0, 1), func(x *journal.Transfer) error {
		if !want[x.ID] {
			t.Errorf("transfer %v is read twice, or is of another day", x.ID)
		}
		delete(want, x.ID)
		more++
		book(more, day.AddDate(0, 0, 2)) // would block if a snapshot were open
		return nil
	})
	if err != nil || len(want) != 0 {
		t.Errorf("%d of %d transfers were not read, %v", len(want), n, err)
	}
	all, enough := 0, errors.New("enough")
	err = l.ScanTransfers(t.Context(), time.Time{}, time.Time{}, func(*journal.Transfer) error {
		if all++; all == 2*n+2 {
			return enough
		}
		return nil
	})
	if all != 2*n+2 || !errors.Is(err, enough) {
		t.Errorf("%d transfers were read, %v", all, err)
	}
	damaged := journal.IDOf("damaged")
	if err := store.Update(t.Context(), func(tx storage.Txn) error { return tx.Set(journal.TransferKey(damaged), []byte("x"), time.Time{}) }); err != nil {
		t.Fatal(err)
	}
	if err := l.ScanTransfers(t.Context(), time.Time{}, time.Time{}, func(*journal.Transfer) error { return nil }); !errors.Is(err, storage.ErrUnreadable) {
		t.Errorf("the error for a damaged transfer is %v", err)
	}
}
