package ledger

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/internal/money"
	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

func TestARecordOfACallReadsAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		amount := rapid.Custom(func(t *rapid.T) money.Amount { return money.Amount(number.Draw(t, "n")) })
		want := callRecord{
			Call: Call{
				ID: rapid.String().Draw(t, "id"), Time: number.Draw(t, "time"), User: rapid.String().Draw(t, "user"),
				Key: rapid.String().Draw(t, "key"), Model: rapid.String().Draw(t, "model"), Route: rapid.StringMatching(`[<>&"\\ -~é]*`).Draw(t, "route"),
				Stream: rapid.Bool().Draw(t, "stream"), Status: int(rapid.Int16().Draw(t, "status")),
				Ended: usage.Ended(rapid.StringMatching(`[a-z]*`).Draw(t, "ended")), Usage: usage.Basis(rapid.StringMatching(`[a-z]*`).Draw(t, "usage")),
				Tokens: usage.Tokens{
					Input: number.Draw(t, "input"), Output: number.Draw(t, "output"), CacheRead: number.Draw(t, "read"),
					CacheWrite5m: number.Draw(t, "5m"), CacheWrite1h: number.Draw(t, "1h"), Reasoning: number.Draw(t, "reasoning"),
				},
				Cost: max(amount.Draw(t, "cost"), -money.Max), Lost: max(amount.Draw(t, "lost"), -money.Max),
				FirstByte: number.Draw(t, "first"), Duration: number.Draw(t, "duration"),
			},
			Number: rapid.Int().Draw(t, "number"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "payments") {
			want.Paid = append(want.Paid, payment{
				IDOf(rapid.String().Draw(t, "transfer")), rapid.String().Draw(t, "account"), max(amount.Draw(t, "paid"), -money.Max),
			})
		}
		var got, standard callRecord
		if err := storage.DecodeRecord(want.encode(), &got); err != nil {
			t.Fatalf("%v: %s", err, want.encode())
		}
		if err := storage.DecodeRecord(storage.EncodeRecord(want), &standard); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, standard) {
			t.Fatalf("it was written as %s, and by the standard library as %s", want.encode(), storage.EncodeRecord(want))
		}
	})
}
