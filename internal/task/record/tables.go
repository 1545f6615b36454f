package record

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"

	"github.com/caddy-modelgate/modelgate/storage"
	"github.com/caddy-modelgate/modelgate/storage/table"
)

// Keys of the store. Integers are eight bytes, big-endian; ^ marks inverted
// integers, which sort the latest first. Times are Unix milliseconds.
//
//	task/<id>                            tasks
//	taskbody/<id>                        the job of a task, if it is long, until the task ends
//	taskof/<key>/<^created>/<id>         tasks of an API key, latest first
//	taskuser/<user>/<^created>/<id>      tasks of a user, latest first
//	taskwait/<backend>/<place>/<id>      tasks that wait for a slot, in their order, without deferred tasks
//	taskdue/<backend>/<time>/<id>        tasks by the time when the driver processes them
//	taskref/<backend>/<hash of ref>/<id> tasks at a backend that sends webhooks, by the reference of the job
//	taskend/<time>/<id>                  finished tasks, by the time of their end
//	taskload/<backend>                   counts of the tasks of a backend
//	taskopen/<key>                       the number of unfinished tasks of an API key
//	tasksession/<key>/<hash>             session ids in use
//	taskclaim/<key>/<hash>               idempotency records
//	event/<task>                         callbacks
//	eventdue/<user>/<key>/<time>/<task>  callbacks of an API key by the time of the next attempt
//	eventof/<user>/<^created>/<task>     callbacks of a user, latest first
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

// IDSize is the length of a task's id, which is the end of every index key of tasks.
const IDSize = len("task_") + 26

// LastID returns the id at the end of a key; empty if the key is too short.
func LastID(key []byte) string {
	if len(key) <= IDSize {
		return ""
	}
	return string(key[len(key)-IDSize:])
}

// TimeBefore returns the integer before the id at the end of a key.
func TimeBefore(key []byte) int64 {
	at := len(key) - IDSize - 9
	if at < 0 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(key[at:]))
}

// HashOf returns a hash for use in keys. Text of callers and services may contain any bytes.
func HashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Tasks is the table of tasks. Lists read only index keys, which end with the id.
var Tasks = table.Table[Record]{
	Name:    TaskPrefix,
	Key:     func(r *Record) table.Key { return table.Key{r.ID} },
	Indexes: []*table.Index[Record]{&Queue, &Due, &ByRef, &Ended, &ByKey, &ByUser},
	Written: func(r *Record) *[]byte { return &r.written },
	Check:   (*Record).wrong,
}

var (
	// Queue has the tasks that wait for a slot of a backend, in their order, without deferred
	// tasks.
	Queue = table.Index[Record]{Name: WaitPrefix, Fields: func(r *Record) table.Key {
		if !r.Waiting() || r.Resume != 0 {
			return nil
		}
		return table.Key{r.Backend, r.Place}
	}}

	// Due has the unfinished and watched tasks of a backend by the time they are due.
	Due = table.Index[Record]{Name: DuePrefix, Fields: func(r *Record) table.Key {
		if r.Due == 0 {
			return nil
		}
		return table.Key{r.Backend, r.Due}
	}}

	// ByRef has the tasks at backends that send webhooks, by the reference of the job.
	ByRef = table.Index[Record]{Name: RefPrefix, Fields: func(r *Record) table.Key {
		if r.Over() || r.Delivery != Accepted || r.Ref == nil || r.NoWebhook {
			return nil
		}
		return table.Key{r.Backend, HashOf(r.Ref.ID)}
	}}

	// Ended has the finished tasks by the time of their end.
	Ended = table.Index[Record]{Name: EndPrefix, Fields: func(r *Record) table.Key {
		if !r.Over() {
			return nil
		}
		return table.Key{r.Completed}
	}}

	// ByKey and ByUser have the tasks of an API key and of a user, latest first.
	ByKey = table.Index[Record]{Name: OfKeyPrefix, Fixed: true, Fields: func(r *Record) table.Key {
		return table.Key{r.Key, storage.Inverted(r.Created)}
	}}
	ByUser = table.Index[Record]{Name: OfUserPrefix, Fixed: true, Fields: func(r *Record) table.Key {
		return table.Key{r.User, storage.Inverted(r.Created)}
	}}
)

// Events is the table of callbacks.
var Events = table.Table[Event]{
	Name:    EventPrefix,
	Key:     func(v *Event) table.Key { return table.Key{v.Task} },
	Indexes: []*table.Index[Event]{&EventsDue, &EventsByUser},
	Check:   (*Event).wrong,
}

var (
	// EventsDue has the callbacks of an API key by the time of the next attempt.
	EventsDue = table.Index[Event]{Name: EventDuePrefix, Fields: func(v *Event) table.Key {
		if v.Due == 0 {
			return nil
		}
		return table.Key{v.User, v.Key, v.Due}
	}}

	// EventsByUser has the callbacks of a user, latest first.
	EventsByUser = table.Index[Event]{Name: EventOfPrefix, Fixed: true, Fields: func(v *Event) table.Key {
		return table.Key{v.User, storage.Inverted(v.Created)}
	}}
)

// Sessions is the table of session ids in use. The store may remove a record after Until, which
// is the end of its use.
var Sessions = table.Table[Session]{
	Name:    SessionPrefix,
	Key:     func(s *Session) table.Key { return table.Key{s.Key, s.Hash} },
	Expires: func(s *Session) time.Time { return time.UnixMilli(s.Until).Add(24 * time.Hour) },
}

// IdempotencyKeys is the table of idempotency records.
var IdempotencyKeys = table.Table[IdempotencyRecord]{
	Name: IdempotencyPrefix,
	Key:  func(c *IdempotencyRecord) table.Key { return table.Key{c.Key, c.Hash} },
}
