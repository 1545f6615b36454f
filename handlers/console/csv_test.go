package console

import (
	"encoding/csv"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/memory"
)

// busy is a ResponseWriter that books transfers while the answer is written.
type busy struct {
	*httptest.ResponseRecorder
	move func()
}

func (b *busy) Write(p []byte) (int, error) {
	b.move()
	return b.ResponseRecorder.Write(p)
}

func TestLinesThatAreWrittenMeanwhileNeitherDoubleNorHideOthersInCSV(t *testing.T) {
	t.Parallel()
	store := storage.New(memory.New(), storage.Options{})
	t.Cleanup(func() { _ = store.Close() })
	book, err := ledger.Open(t.Context(), store, ledger.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { book.Close(t.Context()) })
	moved := 0
	move := func() {
		moved++
		err := store.Update(t.Context(), func(tx storage.Txn) error {
			_, err := journal.Book(tx, store.Now(), journal.Transfer{
				ID: journal.IDOf(fmt.Sprint(moved)), Kind: journal.Credit, User: "usr_1", Legs: journal.LegsBetween(journal.Operator, journal.Wallet("usr_1"), 1),
			})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	const n = 3*csvBatch + 7
	for range n {
		move()
	}
	w := &busy{httptest.NewRecorder(), move}
	req := &request{
		runtime: &caddymodule.Runtime{Store: store, Ledger: book}, account: &identity.Account{UserID: "usr_1"},
		w: w, r: httptest.NewRequest("GET", "/", nil),
	}
	if err := req.ledgerCSV(journal.Wallet("usr_1")); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || len(rows) != n+1 || moved < n+10 {
		t.Fatalf("%d rows of %d lines while %d were written, %v", len(rows), n, moved-n, err)
	}
	for i, row := range rows[1:] {
		if row[0] != fmt.Sprint(n-i) {
			t.Fatalf("row %d is number %s, want %d", i, row[0], n-i)
		}
	}
}
