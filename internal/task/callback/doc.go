// Package callback sends the callbacks of tasks. The transaction that ends a task writes an event
// into the outbox. [Sender] sends it at least once, with growing pauses, and signs it according to
// Standard Webhooks. Each API key has a callback queue, and users share the slots: a receiver that
// hangs does not delay the callbacks of other users. [Service] has the operations of users and
// operators on callbacks.
//
// The package imports records of tasks, and neither transitions nor the engine, which calls
// [Sender.Serve], [Sender.Due] and Halt. References between its files point from service to
// sender to sign and queue.
package callback
