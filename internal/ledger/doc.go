// Package ledger lets users spend their money: it reserves, settles and holds.
//
// Package journal declares the stored records. Package verify checks them.
//
// # Balance cache
//
// The balances of each active user are cached. They are the available money of the user's
// accounts, in the user's order of spending, minus the reservations of running calls. Every
// debit reserves here first, so that no money is spent twice, and no call waits for the
// store.
//
// Each transaction records the account states that it writes. The balances are updated with these
// states when the transaction is durable, in the order of commits. Only a load reads all accounts
// of a user. So the balances are always the durable state after the last installed commit, minus
// the reservations whose debits have not been committed.
//
// On a shared store, other nodes spend the same money. So each reservation of a call reads the balances
// in a transaction, applies the same rules, and writes a [journal.CallHold]. A purchase or a task
// reserves in its own transaction. After a node has ended, another one calls [Ledger.EndEpoch], which
// releases what the calls of the ended node hold.
//
// # Calls
//
// A call reserves its highest possible cost, runs, and is settled. The settler queues its record
// and its payments, and writes many settlements in one transaction with one leg per account. A
// crash loses the queue, which is bounded in number and time; the user is then not charged. A long
// call is also settled while it runs, so that a crash loses only seconds of it.
package ledger
