package usage

import (
	"fmt"
	"testing"
)

func TestBill(t *testing.T) {
	t.Parallel()
	reported := Tokens{Input: 100, Output: 40, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}
	firstReport := Tokens{Input: 100, Output: 1} // as in a message_start
	estimate := func(input, output int64) Tokens { return Tokens{Input: input, Output: output} }
	interrupted := []Ended{ClientGone, Timeout, UpstreamError}

	rows := []struct {
		name  string
		ended []Ended
		o     Outcome
		want  Tokens
		basis Basis
	}{
		{"a refused call is free, even with tokens and text", []Ended{Refused},
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 10}, DeliveredBytes: 30}, Tokens{}, None},
		{"a call that failed before it began is free, even with a report", interrupted,
			Outcome{Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"a call that failed before it began is free without a report", interrupted,
			Outcome{EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"a call that failed before it began is free, even if a backend had its body", []Ended{Timeout, UpstreamError},
			Outcome{Sent: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"a call that failed before it began is charged its input with charge_failed_input", []Ended{Timeout, UpstreamError},
			Outcome{Sent: true, FailedInput: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 101}}, estimate(101, 0), Estimated},
		{"a call that reached no backend is free, even with charge_failed_input", interrupted,
			Outcome{FailedInput: true, EstimatedInput: Tokens{Input: 101}}, Tokens{}, None},
		{"a caller who disconnects before content pays the input that a backend had", []Ended{ClientGone},
			Outcome{Sent: true, EstimatedInput: Tokens{Input: 11}}, estimate(11, 0), Estimated},
		{"a caller who disconnects before content pays at least the estimated input", []Ended{ClientGone},
			Outcome{Sent: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 101}}, estimate(101, 1), Estimated},
		{"a caller who disconnects pays the report if the call runs on to its end", []Ended{ClientGone},
			Outcome{Sent: true, Finished: true, Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 1000}, DeliveredBytes: 3000}, reported, Reported},
		{"a caller who disconnects pays nothing if the answer is empty", []Ended{ClientGone},
			Outcome{Sent: true, Finished: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"an empty answer is free", []Ended{Complete},
			Outcome{EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"a complete answer counts as reported", []Ended{Complete},
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 1000}, DeliveredBytes: 3000}, reported, Reported},
		{"an answer without text is charged its input", []Ended{Complete},
			Outcome{Tokens: Tokens{Input: 100}, Input: true, Output: true, EstimatedInput: Tokens{Input: 10}}, Tokens{Input: 100}, Reported},
		{"a complete answer without a report is estimated on both sides", []Ended{Complete},
			Outcome{Began: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 4), Estimated},
		{"a complete answer that only reported its input has an estimated output", []Ended{Complete},
			Outcome{Began: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(100, 4), Estimated},
		{"a complete answer that only reported its output has an estimated input", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Output: 40, CacheRead: 9}, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 40), Estimated},
		{"zero tokens of output for text are not a report of the output", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Input: 100}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(100, 4), Estimated},
		{"zero tokens of input for text are not a report of the input", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Output: 40}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 40), Estimated},
		{"zero tokens for text are not a report", []Ended{Complete, ClientGone, ""},
			Outcome{Sent: true, Began: true, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 4), Estimated},
		{"input that is only from a cache is a report", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{CacheRead: 7, Output: 4}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, Tokens{CacheRead: 7, Output: 4}, Reported},
		{"zero tokens without text are a report", []Ended{Complete},
			Outcome{Began: true, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}}, Tokens{}, Reported},
		{"an interrupted stream is charged the delivered text, not the first reported token", interrupted,
			Outcome{Began: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 300}, estimate(100, 100), Estimated},
		{"an interrupted stream that reported more than it delivered is charged the report", interrupted,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, DeliveredBytes: 30}, reported, Reported},
		{"an interrupted stream that delivered more than it reported is charged the delivered text", interrupted,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, DeliveredBytes: 300},
			Tokens{Input: 100, Output: 98, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}, Estimated},
		{"an interrupted stream that reported less input than estimated is charged the estimate", interrupted,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 200}, DeliveredBytes: 30},
			Tokens{Input: 185, Output: 40, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}, Estimated},
		{"a stream under way counts its input as reported", []Ended{""},
			Outcome{Sent: true, Began: true, Tokens: firstReport, Input: true, EstimatedInput: Tokens{Input: 200}, DeliveredBytes: 30}, estimate(100, 10), Estimated},
		{"an interrupted stream without a report is estimated on both sides", interrupted,
			Outcome{Began: true, EstimatedInput: Tokens{Input: 1}, DeliveredBytes: 1}, estimate(1, 1), Estimated},
		{"an interrupted stream that only opened a block is charged its report", interrupted,
			Outcome{Began: true, Tokens: firstReport, Input: true}, firstReport, Estimated},
	}
	for _, row := range rows {
		for _, ended := range row.ended {
			t.Run(fmt.Sprintf("%s (%s)", row.name, ended), func(t *testing.T) {
				t.Parallel()
				outcome := row.o
				outcome.Ended = ended
				outcome.Finished = outcome.Finished || ended == Complete
				if got, basis := outcome.Bill(); got != row.want || basis != row.basis {
					t.Errorf("%+v %s, want %+v %s", got, basis, row.want, row.basis)
				}
			})
		}
	}
}

func TestEstimateIsAThirdRoundedUp(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]int64{0: 0, 1: 1, 2: 1, 3: 1, 4: 2, 6: 2, 7: 3, 1<<63 - 1: (1<<63-1)/3 + 1} {
		if got := Estimate(bytes); got != want {
			t.Errorf("Estimate(%d) = %d, want %d", bytes, got, want)
		}
	}
}

func TestAnInterruptedCallIsChargedTheGreaterOutput(t *testing.T) {
	t.Parallel()
	for delivered := int64(0); delivered < 400; delivered++ {
		o := Outcome{Ended: ClientGone, Began: true, Tokens: Tokens{Output: 50, Reasoning: 10}, Input: true, Output: true, DeliveredBytes: delivered}
		bill, _ := o.Bill()
		if want := max(60, Estimate(delivered)); bill.AllOutput() != want || bill.Output < 0 {
			t.Fatalf("%d delivered bytes: charged %+v, want %d tokens of output", delivered, bill, want)
		}
	}
}
