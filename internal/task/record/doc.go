// Package record says what of a task is in the store: the [Record] of a task, the [Event] of its
// callback, session ids, idempotency keys, the counts of a backend and of an API key, and the keys
// and indexes that lead to them. [Record.Task] is the resource that callers see of it. [Store] is
// the store as one engine uses it, and a [Worker] repeats work over it.
//
// Only package transition writes records of tasks. The package imports storage, the ledger and
// backends for their types, and no other package of internal/task.
package record
