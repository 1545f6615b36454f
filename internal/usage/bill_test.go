package usage

import (
	"fmt"
	"testing"
)

func TestBill(t *testing.T) {
	t.Parallel()
	reported := Tokens{Input: 100, Output: 40, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}
	opening := Tokens{Input: 100, Output: 1} // as in a message_start
	estimate := func(input, output int64) Tokens { return Tokens{Input: input, Output: output} }
	broken := []Ended{ClientGone, Timeout, UpstreamError}

	rows := []struct {
		name  string
		ended []Ended
		o     Outcome
		want  Tokens
		basis Basis
	}{
		{"what was refused is free, whatever is said of it", []Ended{Refused},
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 10}, DeliveredBytes: 30}, Tokens{}, None},
		{"what failed before it began is free, though it reported", broken,
			Outcome{Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"what failed before it began and said nothing is free", broken,
			Outcome{EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"what failed before it began is free, though a backend had its body", []Ended{Timeout, UpstreamError},
			Outcome{Sent: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"what failed before it began is charged its input, if the operator wants that", []Ended{Timeout, UpstreamError},
			Outcome{Sent: true, FailedInput: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 101}}, estimate(101, 0), Estimated},
		{"what reached no backend is free, whatever the operator wants", broken,
			Outcome{FailedInput: true, EstimatedInput: Tokens{Input: 101}}, Tokens{}, None},
		{"who leaves before content pays the input that a backend had", []Ended{ClientGone},
			Outcome{Sent: true, EstimatedInput: Tokens{Input: 11}}, estimate(11, 0), Estimated},
		{"who leaves before content pays the input at least as estimated", []Ended{ClientGone},
			Outcome{Sent: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 101}}, estimate(101, 1), Estimated},
		{"who leaves a call that runs on to its end pays what is reported", []Ended{ClientGone},
			Outcome{Sent: true, Finished: true, Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 1000}, DeliveredBytes: 3000}, reported, Reported},
		{"who leaves a call that ends empty pays nothing", []Ended{ClientGone},
			Outcome{Sent: true, Finished: true, EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"an empty answer is free", []Ended{Complete},
			Outcome{EstimatedInput: Tokens{Input: 10}}, Tokens{}, None},
		{"a complete answer counts as reported", []Ended{Complete},
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 1000}, DeliveredBytes: 3000}, reported, Reported},
		{"a model that had nothing to say is charged its input", []Ended{Complete},
			Outcome{Tokens: Tokens{Input: 100}, Input: true, Output: true, EstimatedInput: Tokens{Input: 10}}, Tokens{Input: 100}, Reported},
		{"a complete answer without a report is estimated on both sides", []Ended{Complete},
			Outcome{Began: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 4), Estimated},
		{"a complete answer that reported its input alone is estimated on the other", []Ended{Complete},
			Outcome{Began: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(100, 4), Estimated},
		{"a complete answer that reported its output alone is estimated on the other", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Output: 40, CacheRead: 9}, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 40), Estimated},
		{"text for no tokens of output is no report of the output", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Input: 100}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(100, 4), Estimated},
		{"text for no tokens of input is no report of the input", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{Output: 40}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 40), Estimated},
		{"text for no tokens at all is no report", []Ended{Complete, ClientGone, ""},
			Outcome{Sent: true, Began: true, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, estimate(11, 4), Estimated},
		{"input from a cache alone is a report", []Ended{Complete},
			Outcome{Began: true, Tokens: Tokens{CacheRead: 7, Output: 4}, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 10}, Tokens{CacheRead: 7, Output: 4}, Reported},
		{"nothing for no tokens is a report", []Ended{Complete},
			Outcome{Began: true, Input: true, Output: true, EstimatedInput: Tokens{Input: 11}}, Tokens{}, Reported},
		{"a broken stream is charged what it delivered, not its opening token", broken,
			Outcome{Began: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 11}, DeliveredBytes: 300}, estimate(100, 100), Estimated},
		{"a broken stream that reported more than it delivered is charged the report", broken,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, DeliveredBytes: 30}, reported, Reported},
		{"a broken stream that delivered more than it reported is charged the delivery", broken,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, DeliveredBytes: 300},
			Tokens{Input: 100, Output: 98, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}, Estimated},
		{"a broken stream that was asked more than it reported is charged the estimate", broken,
			Outcome{Began: true, Tokens: reported, Input: true, Output: true, EstimatedInput: Tokens{Input: 200}, DeliveredBytes: 30},
			Tokens{Input: 185, Output: 40, CacheRead: 7, CacheWrite5m: 5, CacheWrite1h: 3, Reasoning: 2}, Estimated},
		{"a stream under way counts its input as reported", []Ended{""},
			Outcome{Sent: true, Began: true, Tokens: opening, Input: true, EstimatedInput: Tokens{Input: 200}, DeliveredBytes: 30}, estimate(100, 10), Estimated},
		{"a broken stream without a report is estimated on both sides", broken,
			Outcome{Began: true, EstimatedInput: Tokens{Input: 1}, DeliveredBytes: 1}, estimate(1, 1), Estimated},
		{"a broken stream that opened a block and said nothing is charged its input", broken,
			Outcome{Began: true, Tokens: opening, Input: true}, opening, Estimated},
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
			t.Errorf("%d bytes are %d tokens, want %d", bytes, got, want)
		}
	}
}

func TestAnEstimateOfTextBilledInPartsIsNeverBelowTheReport(t *testing.T) {
	t.Parallel()
	for delivered := int64(0); delivered < 400; delivered++ {
		o := Outcome{Ended: ClientGone, Began: true, Tokens: Tokens{Output: 50, Reasoning: 10}, Input: true, Output: true, DeliveredBytes: delivered}
		bill, _ := o.Bill()
		if want := max(60, Estimate(delivered)); bill.AllOutput() != want || bill.Output < 0 {
			t.Fatalf("%d bytes delivered are billed %+v, want %d in all", delivered, bill, want)
		}
	}
}
