// Package transition changes tasks. A task changes by a [Row] of the table and in no other way; the
// table names for each row the stages it leads from and to, who may cause it, and what it writes:
// the record, the money, the callback, the names that the task has reserved. [Writer.Apply] carries
// out a row within a transaction. Indexes and counts follow from the record in the same
// transaction, so that package verify can derive them again.
//
// The package imports records and the ledger, and neither the engine nor the callbacks. References
// between its files point from table to change to effects to times.
package transition
