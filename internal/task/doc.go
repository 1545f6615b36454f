// Package task runs generation tasks, which make images and videos. A backend takes seconds or
// hours for one, while the gateway may be killed and restarted at any moment. [Engine] is its
// service object: it submits, drives, cancels and lists tasks and sends their callbacks. It may
// import backends, storage and the ledger, and no HTTP handler. Other packages import this one.
// Those below it are its parts: record (what is in the store), transition (all changes of a task),
// callback (sending callbacks) and verify (the checks, which commands and tests call).
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
// The transaction that creates a task holds its maximum price. The transaction that ends it captures
// the price of what was delivered, or voids the hold. The table lets no task end twice.
//
// # Drivers
//
// Each configured backend has one driver. It sends queued jobs, in their order, when a slot is
// free. It processes tasks that are due: it polls jobs, searches for jobs whose delivery is unknown,
// and ends tasks whose deadline has passed. Processing begins with a claim, which has a lease and a
// rising fence. A result counts only if no other driver has claimed the task since. A task uses
// memory only while it is being processed. The tasks of an unconfigured backend wait.
//
// On a shared store, each node has drivers. A claim belongs to the epoch of its node, and
// [Engine.EndEpoch] frees the claims of a node that has ended.
//
// # Files
//
// References point down only, and from left to right within a line:
//
//	submit, cancel, backend_status, read, sweep       what callers ask of the engine, by method
//	engine                                            opens, configures and closes an Engine
//	run, poll, reconcile, copy, deliver, backoff, driver   the driver of one backend
//	adapter_errors, apply, counters                   errors of adapters; transitions; counts
//	cache, config                                     finished tasks in memory; Config
//	types                                             names for what the packages below declare
package task
