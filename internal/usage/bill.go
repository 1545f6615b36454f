package usage

// Ended is how a call ended.
type Ended string

// The ends of a call (interface, section 3).
const (
	Complete      Ended = "complete"       // the backend's answer, whole
	ClientGone    Ended = "client_gone"    // the caller left
	Timeout       Ended = "timeout"        // the backend was silent too long
	UpstreamError Ended = "upstream_error" // the backend failed or broke off
	MoneyOut      Ended = "money_out"      // it came to more than was reserved, and no more was there
	Refused       Ended = "refused"        // by the gate, or by the backend with a 4xx
)

// Basis is what the tokens of a bill rest on.
type Basis string

// The bases of a bill.
const (
	None      Basis = "none"      // nothing is charged
	Reported  Basis = "reported"  // the backend's figures
	Estimated Basis = "estimated" // at least one side is an estimate
)

// Outcome is all that the billing rule looks at.
type Outcome struct {
	Ended Ended
	Began bool // content was delivered

	Tokens         Tokens // as reported so far
	Input, Output  bool   // which side of them was reported
	AskedText      int64  // UTF-8 bytes of text in the request
	DeliveredBytes int64  // UTF-8 bytes of text in the answer
}

// Bill applies the billing rule: it returns the tokens that count, and what
// they rest on.
//
//   - What was refused or failed before it began counts nothing, and neither
//     does an empty answer.
//   - A complete answer counts as reported, also when the model had nothing to
//     say; a side that was not reported is estimated.
//   - One that was broken off after it began counts the input as reported, else
//     estimated, and of the output the greater of what was reported so far and
//     the estimate of what was delivered: a messages stream reports one token of
//     output at its start, and that alone would be nearly free.
func (o Outcome) Bill() (Tokens, Basis) {
	silent := o.Ended == Complete && (o.Input || o.Output)
	if o.Ended == Refused || !o.Began && !silent {
		return Tokens{}, None
	}
	bill, basis := o.Tokens, Reported
	if !o.Input {
		bill.Input, bill.CacheRead, bill.CacheWrite5m, bill.CacheWrite1h = Estimate(o.AskedText), 0, 0, 0
		basis = Estimated
	}
	delivered := Estimate(o.DeliveredBytes)
	if (o.Ended != Complete || !o.Output) && delivered > bill.AllOutput() {
		bill.Output = delivered - bill.Reasoning
		basis = Estimated
	}
	if !o.Output && basis == Reported {
		basis = Estimated
	}
	return bill, basis
}
