package journal

import (
	"bytes"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/caddy-modelgate/modelgate/money"
)

func TestTransferRecordsRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.OneOf(rapid.Just(int64(0)), rapid.Int64())
		amount := rapid.Custom(func(t *rapid.T) money.Amount { return money.Amount(number.Draw(t, "n")) })
		want := Transfer{
			ID: IDOf(rapid.String().Draw(t, "id")), Kind: rapid.SampledFrom([]Kind{Calls, Purchase, Hold, Void}).Draw(t, "kind"),
			Time: number.Draw(t, "time"), User: rapid.StringMatching(`[^/]*`).Draw(t, "user"), Reference: rapid.String().Draw(t, "reference"),
			Actor: rapid.String().Draw(t, "actor"), Reason: rapid.String().Draw(t, "reason"), Count: rapid.Int().Draw(t, "count"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "legs") {
			account := rapid.OneOf(
				rapid.SampledFrom([]Account{Wallet(want.User), Receivable(want.User), Wallet("another"), Spent.On(time.Unix(0, 0)), "", "u/", ownPrefix(want.User)}),
				rapid.Custom(func(t *rapid.T) Account { return Account(rapid.String().Draw(t, "name")) }),
			).Draw(t, "account")
			want.Legs = append(want.Legs, Leg{
				Account: account, Amount: amount.Draw(t, "amount"), Held: amount.Draw(t, "held"), Number: rapid.Uint64().Draw(t, "number"),
			})
		}
		key := TransferKey(want.ID)
		record := want.Encode(key)
		got, err := DecodeTransfer(key, record)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("wrote %+v, read %+v", want, got)
		}
		if isOfCalls(record) != (want.Kind == Calls) {
			t.Fatalf("isOfCalls is %t for a transfer of kind %s", isOfCalls(record), want.Kind)
		}
		if x, err := DecodeTransfer(TransferKey(IDOf("another")), record); err == nil || x.ID != IDOf("another") {
			t.Fatalf("the record is accepted at the key of another transfer: %v", err)
		}
		at := rapid.IntRange(0, len(record)-1).Draw(t, "at")
		damaged := bytes.Clone(record)
		damaged[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		if _, err := DecodeTransfer(key, damaged); err == nil {
			t.Fatalf("the record is accepted although byte %d is damaged", at)
		}
	})
}

func TestInvalidRecordIsNotATransferOfCalls(t *testing.T) {
	t.Parallel()
	for _, record := range []string{"", "\x01", "\x01{"} {
		if isOfCalls([]byte(record)) {
			t.Errorf("isOfCalls is true for %q", record)
		}
	}
}
