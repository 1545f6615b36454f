package task

import (
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// tasks are the records of tasks. Those who list tasks read keys of the indexes alone,
// which end with the id.
var tasks = table.Table[record]{
	Name:    taskPrefix,
	Key:     func(r *record) table.Key { return table.Key{r.ID} },
	Indexes: []*table.Index[record]{&queue, &due, &ofRef, &ended, &ofKey, &ofUser},
	Written: func(r *record) *[]byte { return &r.written },
	Check:   (*record).wrong,
}

var (
	// queue holds the tasks that wait for a slot of a backend, in their order, without those
	// that are tried again later.
	queue = table.Index[record]{Name: waitPrefix, Fields: func(r *record) table.Key {
		if !r.waiting() || r.Resume != 0 {
			return nil
		}
		return table.Key{r.Backend, r.Place}
	}}

	// due holds when the driver of a backend must look at a task.
	due = table.Index[record]{Name: duePrefix, Fields: func(r *record) table.Key {
		if r.Due == 0 {
			return nil
		}
		return table.Key{r.Backend, r.Due}
	}}

	// ofRef leads from a job to its task, where the backend sends webhooks.
	ofRef = table.Index[record]{Name: refPrefix, Fields: func(r *record) table.Key {
		if r.over() || r.Handover != Accepted || r.Ref == nil || r.Unheard {
			return nil
		}
		return table.Key{r.Backend, hashOf(r.Ref.ID)}
	}}

	// ended holds the tasks that are over, by when they were.
	ended = table.Index[record]{Name: endPrefix, Fields: func(r *record) table.Key {
		if !r.over() {
			return nil
		}
		return table.Key{r.Completed}
	}}

	// ofKey and ofUser hold the tasks of an API key and of a user, latest first.
	ofKey = table.Index[record]{Name: ofKeyPrefix, Fixed: true, Fields: func(r *record) table.Key {
		return table.Key{r.Key, storage.Inverted(r.Created)}
	}}
	ofUser = table.Index[record]{Name: ofUserPrefix, Fixed: true, Fields: func(r *record) table.Key {
		return table.Key{r.User, storage.Inverted(r.Created)}
	}}
)

// events are the callbacks of tasks.
var events = table.Table[eventRecord]{
	Name:    eventPrefix,
	Key:     func(v *eventRecord) table.Key { return table.Key{v.Task} },
	Indexes: []*table.Index[eventRecord]{&eventDue, &eventsOf},
	Check:   (*eventRecord).wrong,
}

var (
	// eventDue holds the callbacks of an API key that are to be sent, by when.
	eventDue = table.Index[eventRecord]{Name: eventDuePrefix, Fields: func(v *eventRecord) table.Key {
		if v.Due == 0 {
			return nil
		}
		return table.Key{v.User, v.Key, v.Due}
	}}

	// eventsOf holds the callbacks of a user, latest first.
	eventsOf = table.Index[eventRecord]{Name: eventOfPrefix, Fixed: true, Fields: func(v *eventRecord) table.Key {
		return table.Key{v.User, storage.Inverted(v.Created)}
	}}
)

// sessions are the session ids in use. The store may drop one later than it ends: what ends it
// is its field.
var sessions = table.Table[sessionRecord]{
	Name:    sessionPrefix,
	Key:     func(s *sessionRecord) table.Key { return table.Key{s.Key, s.Hash} },
	Expires: func(s *sessionRecord) time.Time { return time.UnixMilli(s.Until).Add(24 * time.Hour) },
}

// claims are the idempotency keys that were used.
var claims = table.Table[claimRecord]{
	Name: claimPrefix,
	Key:  func(c *claimRecord) table.Key { return table.Key{c.Key, c.Hash} },
}
