package generation

import (
	"encoding/json"
	"fmt"

	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
)

// Fingerprint tells requests apart that one idempotency key might be used for. It
// is that of what was asked for, before [Check] has filled in defaults: neither
// white space nor the order of members makes another request of one, nor does a
// default that was changed since.
func (r *Request) Fingerprint() (journal.ID, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return journal.ID{}, fmt.Errorf("fingerprint of a generation: %w", err)
	}
	return journal.IDOf("generation", string(text)), nil
}
