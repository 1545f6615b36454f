// Package task runs generation tasks: images and videos that a backend takes seconds or hours to
// make, while the gateway may be killed and started again at any moment. [Engine] is its service
// object: it submits, drives, cancels and lists tasks and sends their callbacks. It may import
// backends, storage and the ledger, and no HTTP handler. Other packages import this one; those below
// it are its parts: record (what is in the store), transition (all changes of a task), callback
// (sending callbacks) and verify (the checks, which commands and tests call).
//
// # A task
//
// A task is one record. Its state only goes forward: queued, in_progress, then success or failed.
// Its delivery says where the job is: not sent (none), being sent (sending), at the backend
// (accepted), not taken (rejected), or possibly at the backend (unknown). Sending is durable before
// the first byte leaves. So after a crash none means that the job was never sent. Sending means that
// it may have been: the gateway then looks for the job, and never sends it again.
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
// # Files
//
// References point down only, between the files of each line from left to right:
//
//	submit, sweep, operate, read                  what callers of the engine do
//	engine                                        Engine: opens, configures and closes it all
//	turn, poll, copy, delivery, backoff, driver   the driver of one backend
//	adapter, core                                 calls of adapters; transitions of known tasks
//	cache, config                                 what these need; api names what lies below
package task
