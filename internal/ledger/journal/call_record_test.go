package journal

import (
	"encoding/binary"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/money"
)

func TestCallRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		amount := rapid.Custom(func(t *rapid.T) money.Amount { return money.Amount(number.Draw(t, "n")) })
		want := CallRecord{
			Call: Call{
				ID: rapid.String().Draw(t, "id"), Time: number.Draw(t, "time"), User: rapid.StringMatching(`[^/]*`).Draw(t, "user"),
				Key: rapid.String().Draw(t, "key"), Model: rapid.String().Draw(t, "model"), Route: rapid.StringMatching(`[<>&"\\ -~é]*`).Draw(t, "route"),
				Stream: rapid.Bool().Draw(t, "stream"), Status: int(rapid.Int16().Draw(t, "status")),
				Ended: rapid.SampledFrom(endedValues).Draw(t, "ended"), Usage: rapid.SampledFrom(basisValues).Draw(t, "usage"),
				Rule: rapid.SampledFrom(ruleValues).Draw(t, "rule"),
				Tokens: usage.Tokens{
					Input: number.Draw(t, "input"), Output: number.Draw(t, "output"), CacheRead: number.Draw(t, "read"),
					CacheWrite5m: number.Draw(t, "5m"), CacheWrite1h: number.Draw(t, "1h"), Reasoning: number.Draw(t, "reasoning"),
					AudioInput: number.Draw(t, "audio in"), ImageOutput: number.Draw(t, "image out"),
				},
				Cost: max(amount.Draw(t, "cost"), -money.Max), Uncollected: max(amount.Draw(t, "lost"), -money.Max),
				FirstByte: number.Draw(t, "first"), Duration: number.Draw(t, "duration"),
				Backend: rapid.String().Draw(t, "backend"), Answered: int(rapid.Int16().Draw(t, "answered")), Breakdown: rapid.String().Draw(t, "breakdown"),
			},
			Number: rapid.Int().Draw(t, "number"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "payments") {
			want.Paid = append(want.Paid, Payment{
				IDOf(rapid.String().Draw(t, "transfer")), rapid.String().Draw(t, "account"), max(amount.Draw(t, "paid"), -money.Max),
			})
		}
		key := want.StoreKey(CallPrefix)
		record := want.Encode(key)
		got, err := DecodeCall(key, record)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("wrote %+v, read %+v", want, got)
		}
		if _, err := DecodeCall(append(key, 'x'), record); err == nil {
			t.Fatal("the record is accepted at the key of another call")
		}
		at := rapid.IntRange(0, len(record)-1).Draw(t, "at")
		record[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if _, err := DecodeCall(key, record); err == nil {
			t.Fatalf("the record is accepted although byte %d is damaged", at)
		}
	})
}

func TestARecordWithoutMediaHasTheShortLayout(t *testing.T) {
	t.Parallel()
	text := CallRecord{Call: Call{ID: "req_A", User: "usr_1", Ended: usage.Complete, Tokens: usage.Tokens{Input: 1, Output: 1}}}
	media := text
	media.Tokens.AudioInput = 1
	key := text.StoreKey(CallPrefix)
	// The four numbers of media tokens take a byte each.
	if got := len(media.Encode(key)) - len(text.Encode(key)); got != 4 {
		t.Errorf("the record with audio tokens is %d bytes larger, want 4", got)
	}
}

// FuzzCallRecord decodes arbitrary bytes with a correct checksum as the record of a call.
func FuzzCallRecord(f *testing.F) {
	c := CallRecord{Call: Call{ID: "req_A", User: "usr_1", Key: "key_1", Model: "m", Ended: usage.Complete}, Number: 1, Paid: []Payment{{ID{1}, "wallet", 5}}}
	key := c.StoreKey(CallPrefix)
	record := c.Encode(key)
	f.Add(record[:len(record)-4])
	f.Add([]byte("\x02"))
	f.Add([]byte("\x01{}"))
	f.Fuzz(func(t *testing.T, record []byte) {
		record = binary.BigEndian.AppendUint32(record, recordSum(key, record))
		c, err := DecodeCall(key, record)
		if err != nil {
			return
		}
		again, err := DecodeCall(key, c.Encode(key))
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%q decodes to %+v, after encoding it again to %+v: %v", record, c, again, err)
		}
	})
}
