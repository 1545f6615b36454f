package task

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/audit"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/storage"
)

// Callbacks says where the callbacks of API keys go.
type Callbacks interface {
	// Address returns that of a key; false when it has none, or none that is not
	// disabled. It is called inside transactions, that of the end of a task
	// among them.
	Address(r storage.Reader, key string) (Address, bool, error)

	// Disable ends the use of an address, whose receiver has said that it is
	// gone. It does nothing when the key has another by now. The event is what was
	// recorded of it; nil: nothing.
	Disable(t storage.Txn, now time.Time, key, url string) (*audit.Event, error)
}

// Address is where callbacks go.
type Address struct {
	URL string

	// Secrets sign callbacks: the one in force and, while it is rotated, the one
	// before. There is at least one, and none is empty.
	Secrets [][]byte
}

// DeliveryState is where a callback stands.
type DeliveryState string

// The states of a callback.
const (
	Undelivered DeliveryState = "undelivered" // it is going to be sent, again or for the first time
	Delivered   DeliveryState = "delivered"   // the receiver has acknowledged it
	Dead        DeliveryState = "dead"        // it is given up
)

// redeliveryFor is how long after its end a callback can be sent again
// (docs/reference/tasks.md#callbacks).
const redeliveryFor = 7 * 24 * time.Hour

// eventRecord is the callback of a task, at event/<task>. What it says is in the
// record of the task, which does not change any more. Times are Unix
// milliseconds.
type eventRecord struct {
	Task    string        `json:"task"`
	Key     string        `json:"key"`
	User    string        `json:"user"`
	Created int64         `json:"created"`
	State   DeliveryState `json:"state"`

	Attempts int    `json:"attempts,omitempty"` // of this round
	Sent     int    `json:"sent,omitempty"`     // in all
	Due      int64  `json:"due,omitempty"`      // of the next attempt
	Fence    int64  `json:"fence,omitempty"`    // of the last claim
	Owner    string `json:"owner,omitempty"`    // which engine has it

	Last    int64  `json:"last,omitempty"`    // time of the last attempt
	Status  int    `json:"status,omitempty"`  // what it was answered; zero: nothing
	Trouble string `json:"trouble,omitempty"` // why it was not delivered
	URL     string `json:"url,omitempty"`     // where it went
	Ended   int64  `json:"ended,omitempty"`
}

// eventID is the id of the callback of a task, the same at every attempt.
func eventID(task string) string { return "evt_" + strings.TrimPrefix(task, "task_") }

// OfCallback returns the task whose callback has this id. What is no such id is
// returned as it is.
func OfCallback(id string) string {
	if own, is := strings.CutPrefix(id, "evt_"); is {
		return "task_" + own
	}
	return id
}

// readEvent returns the callback of a task; nil when there is none.
func readEvent(r storage.Reader, task string) (*eventRecord, error) { return events.Get(r, task) }

// changeEvent is change for callbacks.
func changeEvent(t storage.Txn, task string, fn func(v *eventRecord) bool) (*eventRecord, error) {
	before, err := readEvent(t, task)
	if err != nil || before == nil {
		return nil, err
	}
	after := *before
	if !fn(&after) {
		return before, nil
	}
	return &after, events.Put(t, before, &after)
}

// announce puts the callback of a task that ends into the outbox, where its key
// has an address.
func (e *Engine) announce(t storage.Txn, config *config, r *record) error {
	if config.Callbacks == nil {
		return nil
	}
	_, has, err := config.Callbacks.Address(t, r.Key)
	if err != nil {
		return fmt.Errorf("the callback address of key %s: %w", r.Key, err)
	}
	if !has {
		return nil
	}
	r.Event = true
	return events.Put(t, nil, &eventRecord{
		Task: r.ID, Key: r.Key, User: r.User, Created: r.Completed, State: Undelivered, Due: r.Completed,
	})
}

// Delivery is a callback as its owner and operators see it.
type Delivery struct {
	ID       string        `json:"id"` // the webhook-id
	Task     string        `json:"task_id"`
	Key      string        `json:"key_id"`
	State    DeliveryState `json:"state"`
	Created  int64         `json:"created_at"`             // Unix seconds
	Attempts int           `json:"attempts"`               // in all
	Last     int64         `json:"last_attempt,omitempty"` // Unix seconds
	Next     int64         `json:"next_attempt,omitempty"` // Unix seconds
	Status   int           `json:"status,omitempty"`       // what the last attempt was answered
	Trouble  string        `json:"trouble,omitempty"`      // why it was not delivered
	URL      string        `json:"url,omitempty"`
}

func (v *eventRecord) delivery() Delivery {
	return Delivery{
		ID: eventID(v.Task), Task: v.Task, Key: v.Key, State: v.State, Created: v.Created / 1000,
		Attempts: v.Sent, Last: v.Last / 1000, Next: v.Due / 1000, Status: v.Status, Trouble: v.Trouble, URL: v.URL,
	}
}

// Deliveries returns callbacks of a user, latest first; after is the task of the
// last one before, empty to begin with the latest. next is where to go on, empty
// when there are no more.
func (e *Engine) Deliveries(ctx context.Context, user, after string, limit int) (list []Delivery, next string, err error) {
	if limit < 0 || limit > mostLimit {
		return nil, "", fault.At(fault.InvalidParameter, "limit", "limit is 1 to %d, this is %d", mostLimit, limit)
	}
	if limit == 0 {
		limit = defaultLimit
	}
	err = e.view(ctx, func(r storage.Reader) error {
		list, next = []Delivery{}, ""
		var from []byte
		if after != "" {
			v, err := readEvent(r, after)
			if err != nil {
				return err
			}
			if v == nil || v.User != user {
				return fault.At(fault.InvalidParameter, "after", "after is the task of a callback in this list")
			}
			from = append(storage.Key(storage.Inverted(v.Created), v.Task), 0)
		}
		return latestOf(r, eventsOf.Under(user), from, func(id string) (more bool, err error) {
			v, err := readEvent(r, id)
			switch {
			case err != nil || v == nil: // what is gone is no place to go on from
				return true, err
			case len(list) == limit:
				next = list[limit-1].Task
				return false, nil
			}
			list = append(list, v.delivery())
			return true, nil
		})
	})
	return list, next, err
}

// Redeliver sends the callback of a task again, in a new round of attempts. That
// is so for 7 days after it was delivered or given up.
func (e *Engine) Redeliver(ctx context.Context, actor string, owner Owner, task string) (Delivery, error) {
	var after *eventRecord
	event := audit.Event{Actor: actor, Action: "callback.redeliver", Detail: task}
	err := e.audited(ctx, &event, func(t storage.Txn) (bool, error) {
		v, err := readEvent(t, task)
		if err != nil {
			return false, err
		}
		now := e.now()
		if v == nil || !owner.owns(v.Key, v.User) {
			return false, fault.New(fault.NotFound, "there is no callback of this task")
		}
		event.User, event.Key = v.User, v.Key
		if v.State != Undelivered && now >= v.Ended+redeliveryFor.Milliseconds() {
			return false, fault.New(fault.Conflict, "a callback can be sent again for 7 days")
		}
		after, err = changeEvent(t, task, func(v *eventRecord) bool {
			v.State, v.Attempts, v.Due, v.Ended = Undelivered, 0, now, 0
			v.Fence++
			return true
		})
		return true, err
	})
	if err != nil {
		return Delivery{}, err
	}
	e.mu.Lock()
	s := e.sender
	e.mu.Unlock()
	if s != nil {
		s.due(after.User, after.Key, after.Due)
	}
	return after.delivery(), nil
}
