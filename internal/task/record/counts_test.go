package record

import (
	"math"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestCountsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, l := range []Load{{}, {1, 2, 3, true, 4}, {math.MaxInt64, math.MinInt64, -1, false, 7}} {
		record := encodeLoad(l)
		if have, err := DecodeLoad(record); err != nil || have != l {
			t.Errorf("%+v is read as %+v, %v", l, have, err)
		}
		for size := range record {
			if have, err := DecodeLoad(record[:size]); err == nil {
				t.Errorf("the first %d bytes of %+v are read as %+v", size, l, have)
			}
		}
		if have, err := DecodeLoad(append(record, 0)); err == nil {
			t.Errorf("%+v with an extra byte is read as %+v", l, have)
		}
	}
	for _, n := range []int64{1, 100, math.MaxInt64} {
		record := encodeCounts(n)
		if have, err := DecodeUnfinished(record); err != nil || have != n {
			t.Errorf("%d is read as %d, %v", n, have, err)
		}
		if have, err := DecodeUnfinished(record[:1]); err == nil {
			t.Errorf("a record without counts is read as %d", have)
		}
	}
}

// BenchmarkCounts encodes and decodes the counts of a backend in their binary form and as JSON.
func BenchmarkCounts(b *testing.B) {
	l := Load{Running: 8, Waiting: 100_000, Last: 1_000_000, Deferred: 3}
	for name, pair := range map[string]struct {
		encode func(Load) []byte
		decode func([]byte) (Load, error)
	}{
		"binary": {encodeLoad, DecodeLoad},
		"json": {
			func(l Load) []byte { return storage.EncodeRecord(l) },
			func(record []byte) (l Load, err error) { return l, storage.DecodeRecord(record, &l) },
		},
	} {
		b.Run("layout="+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := pair.decode(pair.encode(l)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
