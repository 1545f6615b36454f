package task

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
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
//	taskdue/<backend>/<time>/<id>        when somebody must look at one
//	taskref/<backend>/<hash of ref>/<id> those at a backend that tells of them, by its own id
//	taskend/<time>/<id>                  those that are over, by when
//	taskload/<backend>                   what a backend has running and waiting
//	taskopen/<key>                       how many of an API key are not over
//	tasksession/<key>/<hash>             session ids in use
//	taskclaim/<key>/<hash>               idempotency keys
//	event/<task>                         callbacks
//	eventdue/<user>/<key>/<time>/<task>  those of an API key to be sent, by when
//	eventof/<user>/<^created>/<task>     those of a user, latest first
const (
	taskPrefix    = "task"
	bodyPrefix    = "taskbody"
	ofKeyPrefix   = "taskof"
	ofUserPrefix  = "taskuser"
	waitPrefix    = "taskwait"
	duePrefix     = "taskdue"
	refPrefix     = "taskref"
	endPrefix     = "taskend"
	loadPrefix    = "taskload"
	openPrefix    = "taskopen"
	sessionPrefix = "tasksession"
	claimPrefix   = "taskclaim"

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
