package journal

import (
	"fmt"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/usage"
	"github.com/caddy-modelgate/modelgate/storage"
)

// BenchmarkEncodings writes and reads each binary record, and the same record as JSON.
func BenchmarkEncodings(b *testing.B) {
	call := CallRecord{
		Call: Call{
			ID: "req_01JD3K5XW8Q2", Time: 1795176360000, User: "usr_01JD3K5XW8Q2", Key: "key_01JD3K5XW8Q2", Model: "claude-sonnet-4-5",
			Route: "messages", Status: 200, Ended: usage.Complete, Usage: usage.Reported, Tokens: usage.Tokens{Input: 1200, Output: 340},
			Cost: 8_700_000, FirstByte: 420, Duration: 5300, Backend: "api.anthropic.com:443", Answered: 200, Breakdown: "\x01\x00\xf1\x2e\xa9\xea\x01",
		},
		Number: 1, Paid: []Payment{{IDOf("a"), "wallet", 8_700_000}},
	}
	state := State{Balance: 12_345_678_901, Held: 1_000_000, Entries: 4711}
	entry := Entry{Number: 4711, Kind: Calls, Transfer: IDOf("a"), Amount: -8_700_000, After: state}
	entryAt := EntryKey(Wallet(call.User), entry.Number)
	transfer := Transfer{ID: IDOf("a"), Kind: Calls, Time: call.Time, Count: 50}
	for n := range 100 {
		transfer.Legs = append(transfer.Legs, Leg{Account: Wallet(fmt.Sprintf("usr_%012d", n)), Amount: -8_700_000, Number: uint64(n)})
	}
	callAt, transferAt := call.StoreKey(CallPrefix), TransferKey(transfer.ID)
	bench(b, "call", call, func(c CallRecord) []byte { return c.Encode(callAt) },
		func(record []byte) (CallRecord, error) { return DecodeCall(callAt, record) })
	bench(b, "state", state, State.Encode, DecodeState)
	bench(b, "entry", entry, Entry.Encode, func(record []byte) (Entry, error) {
		e, _, err := DecodeEntry(entryAt, record)
		return e, err
	})
	bench(b, "transfer", transfer, func(x Transfer) []byte { return x.Encode(transferAt) },
		func(record []byte) (Transfer, error) { return DecodeTransfer(transferAt, record) })
}

func bench[R any](b *testing.B, name string, record R, encode func(R) []byte, decode func([]byte) (R, error)) {
	b.Helper()
	run := func(format string, encode func(R) []byte, decode func([]byte) (R, error)) {
		b.Run(name+"/"+format, func(b *testing.B) {
			b.ReportAllocs()
			var size int
			for b.Loop() {
				stored := encode(record)
				size = len(stored)
				if _, err := decode(stored); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
	run("binary", encode, decode)
	run("JSON", func(r R) []byte { return storage.EncodeRecord(r) }, func(stored []byte) (r R, err error) {
		err = storage.DecodeRecord(stored, &r)
		return r, err
	})
}
