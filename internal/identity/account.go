package identity

import "net/netip"

// Account is who uses the console, and by which credential he came. It never
// changes; a change of the records makes a new one.
type Account struct {
	UserID   string
	UserName string

	// Credential is the id of the session (ses_…) or of the access token
	// (tok_…) that opened the console. What is proved about a person, such as a
	// second factor, is proved of his credential and dies with it.
	Credential string

	// Session tells a session from an access token.
	Session bool

	// Opened is when the session was opened by a log-in, in Unix seconds; zero
	// for an access token.
	Opened int64

	// Address is where the request comes from that he came by, as text; empty
	// when it is not known. It is told in the events of what he does.
	Address string

	// HalfOpen says that the password was right and the second factor is still
	// due. Such a session may give that factor and log out, and nothing else.
	HalfOpen bool

	// secret is the hash of the session's secret by which he came. Once it was
	// replaced, he is nobody: whoever shared the one before must not be handed the
	// next, nor what was proved since.
	secret Hash
}

// Device is where a session was opened from, as far as one can tell.
type Device struct {
	Address netip.Addr // the zero Addr when it is not known
	Agent   string     // what the browser calls itself
}
