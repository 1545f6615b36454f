package billing

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Desk is where plans are bought and money is paid in. There is one for a store;
// plans and payment services come with each call, since a reload changes them.
type Desk struct {
	store     *storage.Store
	ledger    *ledger.Ledger
	directory *identity.Directory
	log       *zap.Logger

	locks keymutex.KeyedMutex // of orders, and of keys given for them
}

// NewDesk returns the desk of a store. The ledger has been opened with
// [Sources]; the directory tells the audit log of what is done here.
func NewDesk(store *storage.Store, l *ledger.Ledger, d *identity.Directory, logger *zap.Logger) *Desk {
	return &Desk{store: store, ledger: l, directory: d, log: logger}
}

// once does something of one user once, as [ledger.Ledger.Once], together with
// the line of the audit that do returns.
func once[T any](ctx context.Context, d *Desk, user string, c ledger.IdempotencyKey,
	reserve func() (*ledger.Reservation, error),
	do func(t *ledger.Txn, now time.Time) (T, audit.Event, error),
) (answer T, replayed bool, err error) {
	var event audit.Event
	result, replayed, err := d.ledger.Once(ctx, user, c, reserve, func(t *ledger.Txn) (_ any, err error) {
		now := d.store.Now()
		if answer, event, err = do(t, now); err != nil {
			return nil, err
		}
		return answer, audit.Record(ctx, t, now, &event)
	})
	switch {
	case err != nil:
		return *new(T), false, refusal(err)
	case !replayed:
		d.directory.Audit.OnAudit(event)
		return answer, false, nil
	}
	var before T
	if err := json.Unmarshal(result, &before); err != nil {
		return before, false, fmt.Errorf("billing: what was answered cannot be read: %w", err)
	}
	return before, true, nil
}

// claim names what a key is given for: an operation with all of its parameters.
func claim(scope, key string, operation ...string) (ledger.IdempotencyKey, error) {
	c := ledger.IdempotencyKey{Scope: scope, Key: key, Fingerprint: ledger.IDOf(operation...)}
	if refused := c.Validate("idempotency_key"); refused != nil {
		return c, refused
	}
	return c, nil
}

// drawn returns a key for whoever gives none, so that also then a commit whose
// outcome is not known is not done again.
func drawn(key string) string {
	if key == "" {
		return rand.Text()
	}
	return key
}

// operatorScope keeps the keys of operators apart from those of the user whose
// money they change.
func operatorScope(user string) string { return "operator/" + user }

// maxReason bounds an operator's words.
const maxReason = 200

func checkReason(reason string, required bool) error {
	switch n := utf8.RuneCountInString(reason); {
	case n == 0 && required:
		return fault.At(fault.MissingParameter, "reason", "reason is required: why this is done, for the audit")
	case n > maxReason:
		return fault.At(fault.InvalidParameter, "reason", "reason has at most %d characters, this has %d", maxReason, n)
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, unicode.IsControl):
		return fault.At(fault.InvalidParameter, "reason", "reason is UTF-8 without control characters")
	}
	return nil
}

// view reads.
func (d *Desk) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(d.store.View(ctx, fn))
}

// refusal turns what the ledger says into what a buyer may hear of it.
func refusal(err error) error {
	short, ok := errors.AsType[*ledger.Short](err)
	switch {
	case !ok:
		return fault.OfStore(err)
	case short.Owed > 0:
		return fault.New(fault.InsufficientBalance, "spending is paused: %v is owed after a refund or a dispute, until an operator clears it", short.Owed)
	}
	return fault.New(fault.InsufficientBalance, "%v is needed, the wallet has %v available", short.Needed, short.Available)
}
