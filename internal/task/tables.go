package task

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Keys of the store. Integers are eight bytes, big-endian; ^ marks those that
// are counted down from the greatest, so that the latest come first. Times are
// Unix milliseconds.
//
//	task/<id>                            tasks
//	taskbody/<id>                        what the backend is asked for, where that is long, until the task is over
//	taskof/<key>/<^created>/<id>         those of an API key, latest first
//	taskuser/<user>/<^created>/<id>      those of a user
//	taskwait/<backend>/<place>/<id>      those that wait for a slot, in their order, without those that are tried again later
//	taskdue/<backend>/<time>/<id>        when the driver looks at one
//	taskref/<backend>/<hash of ref>/<id> those at a backend that sends webhooks, by its own id
//	taskend/<time>/<id>                  those that are over, by when
//	taskload/<backend>                   what a backend has running and waiting
//	taskopen/<key>                       how many of an API key are not over
//	tasksession/<key>/<hash>             session ids in use
//	taskclaim/<key>/<hash>               idempotency keys
//	event/<task>                         callbacks
//	eventdue/<user>/<key>/<time>/<task>  those of an API key to be sent, by when
//	eventof/<user>/<^created>/<task>     those of a user, latest first
const (
	taskPrefix        = "task"
	bodyPrefix        = "taskbody"
	ofKeyPrefix       = "taskof"
	ofUserPrefix      = "taskuser"
	waitPrefix        = "taskwait"
	duePrefix         = "taskdue"
	refPrefix         = "taskref"
	endPrefix         = "taskend"
	loadPrefix        = "taskload"
	openPrefix        = "taskopen"
	sessionPrefix     = "tasksession"
	idempotencyPrefix = "taskclaim"

	eventPrefix    = "event"
	eventDuePrefix = "eventdue"
	eventOfPrefix  = "eventof"
)

// idSize is the length of a task's id, which ends every key that leads to one.
const idSize = len("task_") + 26

// lastID is the id that ends a key; empty when the key is too short to have one.
func lastID(key []byte) string {
	if len(key) <= idSize {
		return ""
	}
	return string(key[len(key)-idSize:])
}

// timeBefore is the integer before the id that ends a key.
func timeBefore(key []byte) int64 {
	at := len(key) - idSize - 9
	if at < 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key[at:]))
}

// hashOf stands in keys for what others wrote, which may hold anything.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

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
		if r.over() || r.Delivery != Accepted || r.Ref == nil || r.NoWebhook {
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
var idempotencyKeys = table.Table[idempotencyRecord]{
	Name: idempotencyPrefix,
	Key:  func(c *idempotencyRecord) table.Key { return table.Key{c.Key, c.Hash} },
}
