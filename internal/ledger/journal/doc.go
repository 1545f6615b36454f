// Package journal defines what the ledger stores, and writes it.
//
// An [Account] has a [State] with a balance in nano-units. A [Transfer] moves money between
// accounts by legs whose sum is zero, and never changes afterwards. Its id is derived from what
// it does, so that the same thing is done once. The legs of an account are numbered without
// gaps. A leg on an account of a user is an [Entry] there too, with the balance after it. A leg
// on a system account is the only record of what it did. Money that a user holds, in the wallet
// or in a quota, never falls below zero.
//
// A hold sets money of an account aside for something that takes long. It ends once: settled
// for its cost, or voided. What is available is the balance without what is held. Budgets are
// memo accounts: they count what a key or a user has spent in a period, and no money is in them.
//
// [CallRecord] is a model call with its payments, [Usage] the sum of a day, [IdempotencyRecord]
// the answer to an idempotency key.
//
// The functions work inside a transaction of the caller and keep no state. States, entries,
// transfers and calls are encoded by hand, because each call writes them; comments there give
// the reason. All other records are declared with package table.
//
// The package knows no balances in memory: package ledger does. Package verify checks that
// everything here agrees.
package journal
