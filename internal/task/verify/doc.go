// Package verify checks the tasks and callbacks in a store against each other and against the
// ledger. It reads one snapshot and imports records of tasks and the periods of their transitions.
package verify
