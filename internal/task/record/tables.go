package record

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
	TaskPrefix        = "task"
	BodyPrefix        = "taskbody"
	OfKeyPrefix       = "taskof"
	OfUserPrefix      = "taskuser"
	WaitPrefix        = "taskwait"
	DuePrefix         = "taskdue"
	RefPrefix         = "taskref"
	EndPrefix         = "taskend"
	LoadPrefix        = "taskload"
	OpenPrefix        = "taskopen"
	SessionPrefix     = "tasksession"
	IdempotencyPrefix = "taskclaim"

	EventPrefix    = "event"
	EventDuePrefix = "eventdue"
	EventOfPrefix  = "eventof"
)

// IDSize is the length of a task's id, which ends every key that leads to one.
const IDSize = len("task_") + 26

// LastID is the id that ends a key; empty when the key is too short to have one.
func LastID(key []byte) string {
	if len(key) <= IDSize {
		return ""
	}
	return string(key[len(key)-IDSize:])
}

// TimeBefore is the integer before the id that ends a key.
func TimeBefore(key []byte) int64 {
	at := len(key) - IDSize - 9
	if at < 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key[at:]))
}

// HashOf stands in keys for what others wrote, which may hold anything.
func HashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Tasks are the records of tasks. Those who list tasks read keys of the indexes alone,
// which end with the id.
var Tasks = table.Table[Record]{
	Name:    TaskPrefix,
	Key:     func(r *Record) table.Key { return table.Key{r.ID} },
	Indexes: []*table.Index[Record]{&Queue, &Due, &ByRef, &Ended, &ByKey, &ByUser},
	Written: func(r *Record) *[]byte { return &r.written },
	Check:   (*Record).wrong,
}

var (
	// Queue holds the tasks that wait for a slot of a backend, in their order, without those
	// that are tried again later.
	Queue = table.Index[Record]{Name: WaitPrefix, Fields: func(r *Record) table.Key {
		if !r.Waiting() || r.Resume != 0 {
			return nil
		}
		return table.Key{r.Backend, r.Place}
	}}

	// Due holds when the driver of a backend must look at a task.
	Due = table.Index[Record]{Name: DuePrefix, Fields: func(r *Record) table.Key {
		if r.Due == 0 {
			return nil
		}
		return table.Key{r.Backend, r.Due}
	}}

	// ByRef leads from a job to its task, where the backend sends webhooks.
	ByRef = table.Index[Record]{Name: RefPrefix, Fields: func(r *Record) table.Key {
		if r.Over() || r.Delivery != Accepted || r.Ref == nil || r.NoWebhook {
			return nil
		}
		return table.Key{r.Backend, HashOf(r.Ref.ID)}
	}}

	// Ended holds the tasks that are over, by when they were.
	Ended = table.Index[Record]{Name: EndPrefix, Fields: func(r *Record) table.Key {
		if !r.Over() {
			return nil
		}
		return table.Key{r.Completed}
	}}

	// ByKey and ofUser hold the tasks of an API key and of a user, latest first.
	ByKey = table.Index[Record]{Name: OfKeyPrefix, Fixed: true, Fields: func(r *Record) table.Key {
		return table.Key{r.Key, storage.Inverted(r.Created)}
	}}
	ByUser = table.Index[Record]{Name: OfUserPrefix, Fixed: true, Fields: func(r *Record) table.Key {
		return table.Key{r.User, storage.Inverted(r.Created)}
	}}
)

// Events are the callbacks of tasks.
var Events = table.Table[Event]{
	Name:    EventPrefix,
	Key:     func(v *Event) table.Key { return table.Key{v.Task} },
	Indexes: []*table.Index[Event]{&EventsDue, &EventsByUser},
	Check:   (*Event).wrong,
}

var (
	// EventsDue holds the callbacks of an API key that are to be sent, by when.
	EventsDue = table.Index[Event]{Name: EventDuePrefix, Fields: func(v *Event) table.Key {
		if v.Due == 0 {
			return nil
		}
		return table.Key{v.User, v.Key, v.Due}
	}}

	// EventsByUser holds the callbacks of a user, latest first.
	EventsByUser = table.Index[Event]{Name: EventOfPrefix, Fixed: true, Fields: func(v *Event) table.Key {
		return table.Key{v.User, storage.Inverted(v.Created)}
	}}
)

// Sessions are the session ids in use. The store may drop one later than it ends: what ends it
// is its field.
var Sessions = table.Table[Session]{
	Name:    SessionPrefix,
	Key:     func(s *Session) table.Key { return table.Key{s.Key, s.Hash} },
	Expires: func(s *Session) time.Time { return time.UnixMilli(s.Until).Add(24 * time.Hour) },
}

// IdempotencyKeys are the idempotency keys that were used.
var IdempotencyKeys = table.Table[IdempotencyRecord]{
	Name: IdempotencyPrefix,
	Key:  func(c *IdempotencyRecord) table.Key { return table.Key{c.Key, c.Hash} },
}
