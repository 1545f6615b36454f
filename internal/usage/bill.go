package usage

// Ended is how a call ended.
type Ended string

// The ends of a call, as docs/reference/calls.md#endings lists them.
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

// Rule is what decided the bill of a call that did not take its ordinary course.
// Together with [Ended], which is the reason, it stands in the call's record.
type Rule string

// The rules of a bill. The empty one is the ordinary course.
const (
	Finish         Rule = "finish"          // the caller disconnected; the call ran on and is charged as complete
	Cancel         Rule = "cancel"          // the caller left, and the call was cancelled at once
	FinishTimeout  Rule = "finish_timeout"  // the caller left, and the call outlasted the bound of finish
	FinishLimit    Rule = "finish_limit"    // the caller left, and too many calls ran on without a caller
	FinishShutdown Rule = "finish_shutdown" // the caller left, and the gateway ended
	FailedInput    Rule = "failed_input"    // the call failed before content; charge_failed_input charges its input
)

// Outcome is all that the billing rule looks at.
type Outcome struct {
	Ended Ended // empty while the call is under way
	Whole bool  // the answer came to its proper end; always so when the call is complete
	Sent  bool  // the body was handed to a backend that did not refuse the call
	Began bool  // content came

	FailedInput bool // charge_failed_input is on

	Tokens         Tokens // as reported so far
	Input, Output  bool   // which side of them was reported
	Asked          Tokens // the input as it is estimated
	DeliveredBytes int64  // UTF-8 bytes of text in the answer
	Declined       bool   // the model refused before any output; see [Report]
}

// Bill applies the billing rule: it returns the tokens that count, and what
// they rest on.
//
//   - A refused call, an empty answer and one that the model declined before any
//     output count nothing.
//   - A whole answer counts as reported, also when the model had nothing to
//     say; a side that was not reported is estimated, and so is one that was
//     reported as nothing though text was delivered. Whether the caller was
//     still there makes no difference.
//   - A call that was broken off after it began counts the greater of reported
//     and estimated input, and the greater of reported and delivered output: a
//     messages stream reports one token of output at its start, and that alone
//     would be nearly free.
//   - A call whose caller left before it began counts likewise, if its body was
//     handed to a backend.
//   - A call that failed before it began counts nothing. With FailedInput it
//     counts its input, if its body was handed to a backend.
//   - A call that is under way counts as if it were broken off, but its input as
//     reported where that came.
func (o Outcome) Bill() (Tokens, Basis) {
	charged, input, output := o.sides()
	if !charged {
		return Tokens{}, None
	}
	bill, basis := o.Tokens, Reported
	reportedInput, reportedOutput := o.reported()
	if !reportedInput {
		bill = Tokens{
			Output: bill.Output, Reasoning: bill.Reasoning, AudioOutput: bill.AudioOutput, ImageOutput: bill.ImageOutput,
		}
	}
	if more := o.Asked.AllInput() - bill.AllInput(); input && more > 0 {
		bill.addInput(more, &o.Asked)
		basis = Estimated
	}
	if more := Estimate(o.DeliveredBytes) - bill.AllOutput(); output && more > 0 {
		bill.Output += more
		basis = Estimated
	}
	if o.ChargesFailedInput() {
		bill.Output, bill.Reasoning, bill.AudioOutput, bill.ImageOutput = 0, 0, 0, 0
	}
	if !reportedInput || !reportedOutput {
		basis = Estimated
	}
	return bill, basis
}

// addInput adds more tokens of input to t, of the kinds in which asked has more.
func (t *Tokens) addInput(more int64, asked *Tokens) {
	for _, kind := range []struct {
		count *int64
		asked int64
	}{{&t.AudioInput, asked.AudioInput}, {&t.ImageInput, asked.ImageInput}} {
		n := min(max(kind.asked-*kind.count, 0), more)
		*kind.count += n
		more -= n
	}
	t.Input += more
}

// EstimatesInput reports whether Bill looks at Asked.
func (o Outcome) EstimatesInput() bool {
	charged, input, _ := o.sides()
	return charged && input
}

// reported reports which side of the call the backend told. A figure of zero tells
// nothing where text was delivered, which takes tokens of both sides.
func (o Outcome) reported() (input, output bool) {
	delivered := o.DeliveredBytes > 0
	return o.Input && (!delivered || o.Tokens.AllInput() != 0), o.Output && (!delivered || o.Tokens.AllOutput() != 0)
}

// sides reports whether the call is charged, and which side of it counts at
// least as it is estimated.
func (o Outcome) sides() (charged, input, output bool) {
	reportedInput, reportedOutput := o.reported()
	switch {
	case o.Ended == Refused, o.Declined:
		return false, false, false
	case o.Whole:
		return o.Began || o.Input || o.Output, !reportedInput, !reportedOutput
	case o.Began:
		return true, o.Ended != "" || !reportedInput, true
	}
	return o.Ended == ClientGone && o.Sent || o.ChargesFailedInput(), true, true
}

// ChargesFailedInput reports whether FailedInput decides the bill.
func (o Outcome) ChargesFailedInput() bool {
	return o.FailedInput && o.Sent && !o.Declined && !o.Whole && !o.Began && (o.Ended == Timeout || o.Ended == UpstreamError)
}
