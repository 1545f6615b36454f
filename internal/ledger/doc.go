// Package ledger lets users spend their money: it reserves, settles and holds.
//
// What is stored is declared in package journal. Package verify checks it.
//
// # In memory
//
// The balances of each user who spends are cached: the available money of the
// user's accounts, in the order in which the user wants it spent, without what is
// reserved by calls under way. Every debit passes them first, so that money is
// given away once, to the last nano-unit, without a look at the store.
//
// Balances follow the store step by step. What a transaction enters into a user's
// accounts is noted inside it, and reaches the balances when it is durable, in the
// order of commits; only a load reads all accounts of a user. So at every
// moment they are the durable state after the last commit that they were told of,
// minus the reservations whose debits have not been committed.
//
// # Calls
//
// A call reserves its greatest price, runs, and is settled: its record and the
// legs of its payment are queued, and written many at a time in one transaction
// by the settler, folded to one leg per account. A crash forgets the queue,
// which is bounded in number and in time, in the customer's favour. A call that
// takes long is settled in between, so that a crash forgets seconds of it.
package ledger
