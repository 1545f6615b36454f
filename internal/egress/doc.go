// Package egress holds what the gateway asks of an address that a user gave,
// before and while it is dialled. The way in is a text check, [CheckURL], that
// needs no network; the way out is the client of a [Guard], which looks at the
// address of the connection itself, so that no name, redirect, proxy or second
// answer of a resolver leads to the operator's own network.
package egress
