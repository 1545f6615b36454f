// Package egress protects the operator's network when the gateway connects to
// an address that a user gave. [CheckURL] checks the text of a URL before it is
// stored and needs no network. The client of a [Guard] checks the IP address of
// each connection. So no host name, redirect or proxy leads to the operator's
// network, even if a resolver changes its answer. [Allowed] has the operator's
// exceptions. The package imports no other package of this module.
package egress
