package usage

// Ended is how a call ended.
type Ended string

// The ends of a call, as docs/reference/calls.md#endings lists them.
const (
	Complete      Ended = "complete"       // the backend's answer is complete
	ClientGone    Ended = "client_gone"    // the caller disconnected
	Timeout       Ended = "timeout"        // the backend was silent too long
	UpstreamError Ended = "upstream_error" // the backend failed, or its answer ended early
	MoneyOut      Ended = "money_out"      // the cost exceeded the reservation, and no more could be reserved
	Refused       Ended = "refused"        // by the gateway, or by the backend with a 4xx
)

// Basis says where the tokens of a bill come from.
type Basis string

// The bases of a bill.
const (
	None      Basis = "none"      // nothing is charged
	Reported  Basis = "reported"  // the backend's figures
	Estimated Basis = "estimated" // at least one side is an estimate
)

// Rule is the rule that decided the bill of a call that did not complete normally. The
// record of the call has both the rule and the reason, which is [Ended].
type Rule string

// The rules of a bill. It is empty for a call that completed normally.
const (
	Finish         Rule = "finish"          // the caller disconnected; the call ran on and is charged as complete
	Cancel         Rule = "cancel"          // the caller disconnected, and the call was cancelled
	Unsent         Rule = "unsent"          // the caller disconnected before a backend had the body; the call is free
	FinishTimeout  Rule = "finish_timeout"  // the caller disconnected, and the call exceeded the bound of finish
	FinishLimit    Rule = "finish_limit"    // the caller disconnected, and too many calls ran on without a caller
	FinishShutdown Rule = "finish_shutdown" // the caller disconnected, and the gateway shut down
	FailedInput    Rule = "failed_input"    // the call failed before content; charge_failed_input charges its input
)

// Outcome is the input of the billing rule.
type Outcome struct {
	Ended    Ended // empty while the call is under way
	Finished bool  // the answer reached its end; always set if the call is complete
	Sent     bool  // the body was handed to a backend that did not refuse the call
	Began    bool  // content was delivered
	Foreign  bool  // the answer is a stream in an unknown dialect

	FailedInput bool // charge_failed_input is on

	Tokens         Tokens // as reported so far
	Input, Output  bool   // which side of Tokens was reported
	EstimatedInput Tokens // of the whole call
	DeliveredBytes int64  // UTF-8 bytes of text in the answer
	Media          Tokens // speech and images in the answer, as they are estimated
	Declined       bool   // the model refused before any output; see [Report]

	// Units is set if the call is charged by its units and not by its tokens. Then no tokens are
	// estimated. GuessedUnits is set if the number of units is an estimate.
	Units, GuessedUnits bool
}

// Bill applies the billing rule. It returns the tokens to charge, and their basis.
//
//   - A refused call, an empty answer, and an answer that the model declined before
//     any output are charged nothing.
//   - A finished answer is charged as reported, even if it has no text. A side that
//     was not reported is estimated. So is a side that was reported as zero although
//     text was delivered. It does not matter whether the caller was still connected.
//   - A call that was interrupted after it began is charged the greater of reported
//     and estimated input, and the greater of reported and delivered output. A
//     messages stream reports one token of output at its start. That report alone
//     would make the call nearly free.
//   - A call whose caller disconnected before it began is charged the same, if its
//     body was handed to a backend.
//   - A call that failed before it began is charged nothing. With FailedInput it is
//     charged its input, if its body was handed to a backend.
//   - A call that is charged by units (images, characters, seconds) is charged under the
//     same conditions, and no tokens are estimated.
//   - A call that is under way is charged as if it were interrupted now, except that
//     a reported input is not compared with the estimate.
func (o Outcome) Bill() (Tokens, Basis) {
	charged, input, output := o.chargedSides()
	if !charged {
		return Tokens{}, None
	}
	bill, basis := o.Tokens, Reported
	switch {
	case !o.Units:
	case o.GuessedUnits:
		return bill, Estimated
	default:
		return bill, Reported
	}
	reportedInput, reportedOutput := o.reported()
	if !reportedInput {
		bill = Tokens{
			Output: bill.Output, Reasoning: bill.Reasoning, AudioOutput: bill.AudioOutput, ImageOutput: bill.ImageOutput,
		}
	}
	if more := o.EstimatedInput.AllInput() - bill.AllInput(); input && more > 0 {
		bill.addInput(more, &o.EstimatedInput)
		basis = Estimated
	}
	if more := Estimate(o.DeliveredBytes) + o.Media.AllOutput() - bill.AllOutput(); output && more > 0 {
		more = raise(&bill.AudioOutput, o.Media.AudioOutput, more)
		bill.Output += raise(&bill.ImageOutput, o.Media.ImageOutput, more)
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

// addInput adds more tokens of input to t. The tokens go first to the kinds of which
// estimated has more than t.
func (t *Tokens) addInput(more int64, estimated *Tokens) {
	more = raise(&t.AudioInput, estimated.AudioInput, more)
	t.Input += raise(&t.ImageInput, estimated.ImageInput, more)
}

// raise raises count to minimum, by at most more, and returns what is left of more.
func raise(count *int64, minimum, more int64) (left int64) {
	n := min(max(minimum-*count, 0), more)
	*count += n
	return more - n
}

// EstimatesInput reports whether Bill uses EstimatedInput.
func (o Outcome) EstimatesInput() bool {
	charged, input, _ := o.chargedSides()
	return charged && input && !o.Units
}

// reported returns which side of the call the backend reported. If text was delivered, a
// figure of zero does not count as a report, because text needs tokens on both sides.
func (o Outcome) reported() (input, output bool) {
	delivered := o.DeliveredBytes+o.Media.AllOutput() > 0
	return o.Input && (!delivered || o.Tokens.AllInput() != 0), o.Output && (!delivered || o.Tokens.AllOutput() != 0)
}

// chargedSides reports whether the call is charged, and for which sides at least the
// estimate is charged.
func (o Outcome) chargedSides() (charged, input, output bool) {
	reportedInput, reportedOutput := o.reported()
	switch {
	case o.Ended == Refused, o.Declined:
		return false, false, false
	case o.Finished:
		return o.Began || o.Foreign || o.Input || o.Output, !reportedInput, !reportedOutput
	case o.Began:
		return true, o.Ended != "" || !reportedInput, true
	}
	return o.Ended == ClientGone && o.Sent || o.ChargesFailedInput(), true, true
}

// ChargesFailedInput reports whether FailedInput decides the bill.
func (o Outcome) ChargesFailedInput() bool {
	return o.FailedInput && o.Sent && !o.Declined && !o.Finished && !o.Began && (o.Ended == Timeout || o.Ended == UpstreamError)
}
