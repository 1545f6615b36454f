package generation

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// Fingerprint returns a hash that distinguishes requests with the same
// idempotency key. It is computed before [Check] sets defaults, so white space,
// the order of members and later changes of defaults do not change it.
func (r *Request) Fingerprint() (journal.ID, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return journal.ID{}, fmt.Errorf("fingerprint of a generation: %w", err)
	}
	return journal.IDOf("generation", string(text)), nil
}
