// Package journal defines what the ledger stores, and writes it.
//
// An [Account] has a [State] with a balance in nano-units. A [Transfer] moves money between
// accounts by legs with the sum zero, and never changes afterwards. Its id is derived from its
// purpose, so that the same transfer is booked once. The legs of an account are numbered without
// gaps. A leg on an account of a user is an [Entry] there too, with the balance after it. A leg
// on a system account has no entry. The balance of a wallet or a quota never falls below zero.
//
// A hold sets money of an account aside for a task or a call. It ends once: captured for its
// cost, or voided. The available amount is the balance without the holds. Budgets are memo
// accounts: they count the spending of a key or a user in a period, and hold no money.
//
// [CallRecord] is a model call with its payments, [Usage] the sum of a day, [IdempotencyRecord]
// the stored result of an idempotency key.
//
// The functions work inside a transaction of the caller and keep no state. States, entries,
// transfers and calls have binary records, because each call writes them. All other records are
// declared with package table.
//
// Package ledger keeps balances in memory. Package verify checks the records of this package.
package journal
