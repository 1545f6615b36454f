package billing

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/keymutex"
	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/internal/ledger/journal"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Service sells plans and takes payments. There is one per store. Plans and payment services
// are parameters of its methods, because a reload changes them. The methods may be called
// concurrently.
type Service struct {
	store     *storage.Store
	ledger    *ledger.Ledger
	directory *identity.Directory
	log       *zap.Logger

	locks keymutex.KeyedMutex // by order, and by idempotency key of orders
}

// NewService returns the Service of a store. The ledger must have been opened with [Sources]. The
// directory logs audit events.
func NewService(store *storage.Store, l *ledger.Ledger, d *identity.Directory, logger *zap.Logger) *Service {
	return &Service{store: store, ledger: l, directory: d, log: logger}
}

// once runs do for a user once, as [ledger.Ledger.Once] does, and records the audit event that do
// returns in the same transaction.
func once[T any](ctx context.Context, b *Service, user string, c ledger.IdempotencyKey,
	reserve func() (*ledger.Reservation, error),
	do func(t *ledger.Txn, now time.Time) (T, audit.Event, error),
) (done T, replayed bool, err error) {
	var event audit.Event
	result, replayed, err := b.ledger.Once(ctx, user, c, reserve, func(t *ledger.Txn) (_ any, err error) {
		now := b.store.Now()
		if done, event, err = do(t, now); err != nil {
			return nil, err
		}
		return done, audit.Record(ctx, t, now, &event)
	})
	switch {
	case err != nil:
		return *new(T), false, refusal(err)
	case !replayed:
		b.directory.Audit.OnAudit(event)
		return done, false, nil
	}
	var before T
	if err := json.Unmarshal(result, &before); err != nil {
		return before, false, fmt.Errorf("billing: the stored result cannot be read: %w", err)
	}
	return before, true, nil
}

// idempotencyKey returns the key of an operation with its parameters.
func idempotencyKey(scope, key string, operation ...string) (ledger.IdempotencyKey, error) {
	c := ledger.IdempotencyKey{Scope: scope, Key: key, Fingerprint: journal.IDOf(operation...)}
	if refused := c.Validate("idempotency_key"); refused != nil {
		return c, refused
	}
	return c, nil
}

// keyOrRandom returns key, or a random key if key is empty. With a key, a commit with an unknown
// outcome is not repeated.
func keyOrRandom(key string) string {
	if key == "" {
		return rand.Text()
	}
	return key
}

// view runs fn in a read transaction.
func (b *Service) view(ctx context.Context, fn func(storage.Reader) error) error {
	return fault.OfStore(b.store.View(ctx, fn))
}

// refusal turns an error of the ledger into the fault of a purchase.
func refusal(err error) error {
	if shortfall, ok := errors.AsType[*ledger.Shortfall](err); ok {
		return shortfall.PurchaseFault()
	}
	return fault.OfStore(err)
}
