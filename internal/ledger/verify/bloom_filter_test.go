package verify

import (
	"fmt"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

func TestTheFilterHasWhatWasAddedAndLittleElse(t *testing.T) {
	t.Parallel()
	filter := newBloomFilter()
	if filter.has(wallet, extra) {
		t.Error("something is found where nothing was left")
	}
	ids := make([]journal.ID, 300_000)
	for i := range ids {
		ids[i] = journal.IDOf(fmt.Sprint(i))
	}
	for round := range 6 {
		filter.resetIfFull()
		mine, others := journal.Wallet(fmt.Sprint("ann", round)), journal.Wallet(fmt.Sprint("bob", round))
		wrong := 0
		for _, id := range ids {
			filter.add(mine, id)
		}
		for _, id := range ids {
			if !filter.has(mine, id) {
				t.Fatalf("%v is missing", id)
			}
			if filter.has(others, id) {
				wrong++
			}
		}
		if wrong > len(ids)/20 {
			t.Errorf("in round %d, %d of %d are found that were never left", round, wrong, len(ids))
		}
	}
}
