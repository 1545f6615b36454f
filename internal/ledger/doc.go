// Package ledger keeps the money: who has how much, who owes what, and why.
//
// # Durable
//
// An [Account] holds a balance in nano-units. A [Transfer] moves money between
// accounts by legs whose sum is zero, and never changes afterwards; its id is
// derived from what it does, so that what was done once is not done again. The
// legs of an account are numbered without gaps. A leg on an account of a user is
// an entry there, too, with the balance after it; a leg on a system account is the only
// record of what it did, since nothing lists the entries of system accounts. Balances
// are projections: [Verify] rebuilds them, those of users from their entries, those
// of system accounts from the legs. Money that a user holds, in
// the wallet or in a quota, never falls below zero.
//
// A hold sets money of an account aside for something that takes long: it ends
// once, settled for what it came to or voided. What is available is the balance
// without what is held.
//
// Budgets are memo accounts: they count what a key or a user has spent in a
// period, and no money is in them.
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
