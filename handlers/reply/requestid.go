package reply

import "crypto/rand"

// NewRequestID mints the id of one request: "req_" and 128 random bits. It is
// always ours, never taken over from a client or a backend, because the ledger
// names a call by it.
func NewRequestID() string { return "req_" + rand.Text() }
