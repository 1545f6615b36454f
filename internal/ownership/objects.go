package ownership

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/caddy-modelgate/modelgate/internal/ledger"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Objects reads and writes the records of one store. Its methods may be called concurrently.
type Objects struct {
	store  *storage.Store
	ledger *ledger.Ledger
	log    *zap.Logger

	mu   sync.Mutex
	jobs map[string]*Running // by the id of the response
}

// Found is an id in an answer, with the kind of its object.
type Found struct {
	ID   string
	Kind Kind
}

// live reports whether the owner may still name the object.
func (o *Object) live(now time.Time) bool { return !o.Deleted && now.Unix() < o.Until }

// Find returns the objects of a user with these ids. An object is nil if there is none, if it has
// another owner or another kind, or if its time is over: the four are not told apart.
func (s *Objects) Find(ctx context.Context, user string, ids ...Found) ([]*Object, error) {
	found := make([]*Object, len(ids))
	err := s.store.View(ctx, func(r storage.Reader) error {
		for i, id := range ids {
			o, err := objects.Get(r, hashOf(id.ID))
			if err != nil {
				return err
			}
			found[i] = nil
			if o != nil && o.ID == id.ID && o.User == user && o.Kind == id.Kind && o.live(s.store.Now()) {
				found[i] = o
			}
		}
		return nil
	})
	return found, err
}

// refreshAfter is how much older than a new record the old one must be to be replaced.
const refreshAfter = 24 * time.Hour

// Record makes the user of origin the owner of the objects with these ids, for kept. The other members
// of the objects are those of origin. It returns when the records are durable. An object that another
// user owns keeps its owner; Record logs it. An object of the user is kept longer. Record returns the ids
// that no user owned.
func (s *Objects) Record(ctx context.Context, origin Object, kept time.Duration, ids []Found) (fresh []string, err error) {
	fresh, _, err = s.record(ctx, origin, kept, ids)
	return fresh, err
}

func (s *Objects) record(ctx context.Context, origin Object, kept time.Duration, ids []Found) (fresh []string, made bool, err error) {
	until := s.store.Now().Add(kept).Unix()
	var taken int
	err = s.store.Update(ctx, func(t storage.Txn) error {
		taken, made, fresh = 0, false, nil
		for _, id := range ids {
			before, err := objects.Get(t, hashOf(id.ID))
			if err != nil {
				return err
			}
			after := origin
			after.ID, after.Kind, after.Until = id.ID, id.Kind, until
			if id.Kind != Response {
				after.Job = nil
			}
			switch {
			case before == nil:
				fresh = append(fresh, id.ID)
			case before.User != origin.User && (before.live(s.store.Now()) || before.Job != nil):
				taken++
				continue
			case before.Job != nil:
				continue
			case before.User == origin.User && before.live(s.store.Now()) && after.Job == nil && before.Backend == after.Backend &&
				until-before.Until < int64(refreshAfter/time.Second):
				continue
			case before.User == origin.User && before.live(s.store.Now()) && after.Job != nil:
				continue // the vendor has answered a repeated request with the earlier response
			}
			made = made || after.Job != nil
			if err := objects.Put(t, before, &after); err != nil {
				return err
			}
		}
		return nil
	})
	if taken > 0 {
		s.log.Warn("a backend has returned ids of objects that belong to another user", zap.Int("ids", taken),
			zap.String("user_id", origin.User), zap.String("backend", origin.Backend))
	}
	return fresh, made, err
}

// Delete forgets an object, so that nobody can name it. The record of a job stays until it is settled.
func (s *Objects) Delete(ctx context.Context, id string) error {
	return s.store.Update(ctx, func(t storage.Txn) error {
		before, err := objects.Get(t, hashOf(id))
		if err != nil || before == nil {
			return err
		}
		if before.Job == nil {
			return objects.Put(t, before, nil)
		}
		after := *before
		after.Deleted = true
		return objects.Put(t, before, &after)
	})
}
