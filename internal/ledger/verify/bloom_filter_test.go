package verify

import (
	"fmt"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

func TestTheBloomFilterHasFewFalsePositives(t *testing.T) {
	t.Parallel()
	filter := newBloomFilter()
	if filter.has(wallet, extra) {
		t.Error("the empty filter has an entry")
	}
	ids := make([]journal.ID, 300_000)
	for i := range ids {
		ids[i] = journal.IDOf(fmt.Sprint(i))
	}
	for round := range 6 {
		filter.resetIfFull()
		added, other := journal.Wallet(fmt.Sprint("ann", round)), journal.Wallet(fmt.Sprint("bob", round))
		falsePositives := 0
		for _, id := range ids {
			filter.add(added, id)
		}
		for _, id := range ids {
			if !filter.has(added, id) {
				t.Fatalf("%v is missing", id)
			}
			if filter.has(other, id) {
				falsePositives++
			}
		}
		if falsePositives > len(ids)/20 {
			t.Errorf("in round %d, %d of %d are false positives", round, falsePositives, len(ids))
		}
	}
}
