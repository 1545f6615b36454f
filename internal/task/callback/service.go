package callback

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/task/record"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Callback is the resource of a callback for its owner and for operators.
type Callback struct {
	ID       string               `json:"id"` // the webhook-id
	Task     string               `json:"task_id"`
	Key      string               `json:"key_id"`
	State    record.CallbackState `json:"state"`
	Created  int64                `json:"created_at"`             // Unix seconds
	Attempts int                  `json:"attempts"`               // total
	Last     int64                `json:"last_attempt,omitempty"` // Unix seconds
	Next     int64                `json:"next_attempt,omitempty"` // Unix seconds
	Status   int                  `json:"status,omitempty"`       // HTTP status of the last attempt
	Trouble  string               `json:"trouble,omitempty"`      // why it was not delivered
	URL      string               `json:"url,omitempty"`
}

func callbackOf(v *record.Event) Callback {
	return Callback{
		ID: EventID(v.Task), Task: v.Task, Key: v.Key, State: v.State, Created: v.Created / 1000,
		Attempts: v.Sent, Last: v.Last / 1000, Next: v.Due / 1000, Status: v.Status, Trouble: v.Trouble, URL: v.URL,
	}
}

// Service has the operations of users and operators on callbacks. It may be used concurrently.
type Service struct{ by *Sender }

// NewService returns the service of the callbacks that s sends.
func NewService(s *Sender) Service { return Service{s} }

// Test sends one event of the type callback.test to the address of a key of a
// user, and returns the result. It blocks up to attemptTimeout.
func (s Service) Test(ctx context.Context, actor, user, key string) (Callback, error) {
	store, to := s.by.store, s.by.to.Load()
	var address Address
	var has bool
	err := store.Audited(ctx, &audit.Event{Actor: actor, Action: "callback.test", User: user, Key: key}, func(t storage.Txn) (_ bool, err error) {
		address, has, err = to.address(t, key)
		return has, err
	})
	if err != nil {
		return Callback{}, err
	}
	if !has {
		return Callback{}, fault.New(fault.NotFound, "this API key has no callback address")
	}
	now := store.Now()
	body, err := json.Marshal(payload{"callback.test", now.Unix(), struct{}{}})
	if err != nil {
		return Callback{}, err
	}
	d := Callback{ID: "evt_" + rand.Text(), Key: key, State: record.Delivered, Created: now.Unix(), Attempts: 1, Last: now.Unix(), URL: address.URL}
	if d.Status, err = post(ctx, to.client, address, d.ID, now, body); err != nil {
		d.State, d.Trouble = record.Dead, err.Error()
	}
	return d, nil
}

// redeliveryFor is how long after its end a callback can be sent again
// (docs/reference/tasks.md#callbacks).
const redeliveryFor = 7 * 24 * time.Hour

// redeliverable reports whether a callback can be sent again at a time in milliseconds.
func redeliverable(v *record.Event, now int64) bool {
	return v.State == record.Undelivered || now < v.Ended+redeliveryFor.Milliseconds()
}

// Redeliverable reports whether a task has a callback that can be sent again now.
func (s Service) Redeliverable(ctx context.Context, task string) (can bool, err error) {
	err = s.by.store.View(ctx, func(r storage.Reader) error {
		v, err := record.Events.Get(r, task)
		can = err == nil && v != nil && redeliverable(v, s.by.store.Milli())
		return err
	})
	return can, err
}

// Redeliver starts a new round of attempts for the callback of a task. It returns an
// error if the callback ended more than 7 days ago.
func (s Service) Redeliver(ctx context.Context, actor string, owner record.Owner, task string) (Callback, error) {
	store := s.by.store
	var after record.Event
	event := audit.Event{Actor: actor, Action: "callback.redeliver", Detail: task}
	err := store.Audited(ctx, &event, func(t storage.Txn) (bool, error) {
		v, err := record.Events.Get(t, task)
		if err != nil {
			return false, err
		}
		now := store.Milli()
		if v == nil || !owner.Owns(v.Key, v.User) {
			return false, fault.New(fault.NotFound, "there is no callback of this task")
		}
		event.User, event.Key = v.User, v.Key
		if !redeliverable(v, now) {
			return false, fault.New(fault.Conflict, "a callback can be sent again only for 7 days")
		}
		after = *v
		after.State, after.Attempts, after.Due, after.Ended = record.Undelivered, 0, now, 0
		after.Fence++
		return true, record.Events.Put(t, v, &after)
	})
	if err != nil {
		return Callback{}, err
	}
	s.by.Due(after.User, after.Key, after.Due)
	return callbackOf(&after), nil
}

// CallbackPage returns limit callbacks of a user after the first skip, latest first, and the total
// number.
func (s Service) CallbackPage(ctx context.Context, user string, skip, limit int) (list []Callback, total int, err error) {
	err = s.by.store.View(ctx, func(r storage.Reader) error {
		page, all, err := record.Events.Page(r, record.EventsByUser.Under(user), int64(skip), int64(limit), math.MaxInt64)
		list, total = make([]Callback, 0, len(page)), int(all)
		for _, v := range page {
			list = append(list, callbackOf(v))
		}
		return err
	})
	return list, total, err
}

// Callbacks returns callbacks of a user, latest first. after is the cursor of the
// previous page, empty for the first page. next is the cursor of the next page,
// empty if there are no more.
func (s Service) Callbacks(ctx context.Context, user, after string, limit int) (list []Callback, next string, err error) {
	limit, err = record.PageSize(limit)
	if err != nil {
		return nil, "", err
	}
	err = s.by.store.View(ctx, func(r storage.Reader) error {
		list, next = []Callback{}, ""
		in := record.EventsByUser.Under(user)
		if after != "" {
			v, err := record.Events.Get(r, after)
			if err != nil {
				return err
			}
			if v == nil || v.User != user {
				return fault.At(fault.InvalidParameter, "after", "after is the task of a callback in this list")
			}
			in = record.Events.After(in, &record.EventsByUser, v)
		}
		for v, err := range record.Events.Scan(r, in) {
			if err != nil {
				return err
			}
			if len(list) == limit {
				next = list[limit-1].Task
				break
			}
			list = append(list, callbackOf(v))
		}
		return nil
	})
	return list, next, err
}
