// Package transition changes tasks. A task changes only by a [Row] of the transition table. Each
// row has the stages before and after, and the actor that may cause the transition. It also says
// what the transition writes: the record, the money, the callback, the session id and the
// idempotency key. [Writer.Apply] carries out a row within a transaction. The same transaction
// derives indexes and counts from the record, so that package verify can derive them again.
//
// The package imports records and the ledger, and neither the engine nor the callbacks. References
// between its files point from table to change to effects to times.
package transition
