// Package record declares the records of tasks in the store, with their keys and indexes. They are
// the [Record] of a task, the [Event] of its callback, session ids, idempotency keys, and the
// counts of a backend and of an API key. [Record.Task] returns the resource that callers see.
// [Store] is the store of one engine, and a [Worker] repeats work of the engine.
//
// Only package transition writes records of tasks. The package imports storage, query, the ledger and
// backends for their types, and no other package of internal/task.
package record
