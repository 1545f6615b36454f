// Package task drives generation tasks: images and videos that a backend takes
// seconds or hours to make, while the gateway may be killed and started again
// at any moment.
//
// # A task
//
// A task is one record. Its state goes forward only: queued, in_progress, then
// success or failed for good. Beside it stands the hand-over, which says where
// the job is: with us (none), on its way (sending), at the backend (accepted),
// nowhere (refused), or possibly at the backend (doubt). Sending is durable
// before the first byte leaves. So after a crash none means that the job was
// never sent, and sending that it may have been: it is looked for and never
// sent again blindly.
//
// Records and the indexes that lead to them are declared as tables. What counts
// tasks, for each API key and for each backend, changes in the transaction of the
// record. So [Verify] can derive all of it again.
//
// # Money
//
// The greatest price is held in the transaction that makes the task. The
// transaction that ends it settles the hold for what was delivered, or voids
// it. Both compare the state, so that a task ends once, whoever comes first.
//
// # Driving
//
// Each configured backend has one driver. It hands the tasks over that wait for
// a free slot, first come first served, and looks at those that are due, at a
// bounded pace: a poll, a look for a doubtful job, a deadline. A look begins by
// claiming the task, with a lease and a rising fence: what is found out under a
// fence counts only while no later one was taken. Nothing is in memory for a
// task but while somebody works on it. A backend that is gone from the
// configuration has no driver, and its tasks wait for it.
//
// # Callbacks
//
// Where the API key has an address, the transaction that ends a task also puts
// an event into the outbox, one for each task, from where it is delivered at
// least once. Users take turns, and so do the keys of one: however many
// callbacks wait for a receiver that hangs, those of others do not.
package task
