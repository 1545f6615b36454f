// Package task runs generation tasks: images and videos that a backend takes seconds or hours to
// make, while the gateway may be killed and started again at any moment. [Engine] is its service
// object: it submits, drives, cancels and lists tasks and sends their callbacks. [Verify] checks
// all that the package stores. It may import backends, storage and the ledger, and no HTTP handler.
//
// # A task
//
// A task is one record. Its state only goes forward: queued, in_progress, then success or failed.
// Its delivery says where the job is: not sent (none), being sent (sending), at the backend
// (accepted), not taken (rejected), or possibly at the backend (unknown). Sending is durable before
// the first byte leaves. So after a crash none means that the job was never sent. Sending means that
// it may have been: the gateway then looks for the job, and never sends it again.
//
// A task changes by a transition and in no other way. The table in transition.go names for each
// transition the stages it leads from and to, who may cause it, and what it writes: the record, the
// money, the callback, the names that the task has reserved. Indexes and counts follow from the
// record in the same transaction, so that [Verify] can derive them again.
//
// # Money
//
// The transaction that makes a task holds its greatest price. The transaction that ends it captures
// the price of what was delivered, or voids the hold. The table lets no task end twice.
//
// # Drivers
//
// Each configured backend has one driver. It sends waiting jobs, in their order, when a slot is
// free. It looks at tasks that are due: it polls jobs, searches for jobs whose delivery is unknown,
// and ends tasks whose deadline has passed. A look begins with a claim, which has a lease and a
// rising fence. A result counts only if nobody has claimed the task since. A task uses memory only
// while work on it is under way. The tasks of a backend that is not configured any more wait.
//
// # Callbacks
//
// If the API key has a callback address, the transaction that ends a task also writes an event.
// Its callback is sent at least once. Each API key has a callback queue, and users share the slots:
// a receiver that hangs does not delay the callbacks of other users.
//
// # Files
//
// References between the files point downwards: serve, submit, operate, read, list, sweep; driver,
// poll, copy, delivery, backoff, callback_send; engine, callback, adapter; transition; record,
// tables, counts, times. The drivers that the engine has are the exception.
package task
