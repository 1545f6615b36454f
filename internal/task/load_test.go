package task

import (
	"math"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

func TestCountsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for _, l := range []load{{}, {1, 2, 3, true, 4}, {math.MaxInt64, math.MinInt64, -1, false, 7}} {
		for name, record := range map[string][]byte{
			"as this build writes": encodeLoad(l), "as builds before wrote": storage.EncodeRecord(l),
		} {
			if have, err := decodeLoad(record); err != nil || have != l {
				t.Errorf("%s: %+v is read as %+v, %v", name, l, have, err)
			}
			for size := range record {
				if have, err := decodeLoad(record[:size]); err == nil {
					t.Errorf("%s: the first %d bytes of %+v are read as %+v", name, size, l, have)
				}
			}
			if have, err := decodeLoad(append(record, 0)); err == nil {
				t.Errorf("%s: %+v with a byte more is read as %+v", name, l, have)
			}
		}
	}
	for _, n := range []int64{1, 100, math.MaxInt64} {
		for name, record := range map[string][]byte{"as this build writes": encodeCounts(n), "as builds before wrote": storage.EncodeRecord(n)} {
			if have, err := decodeUnfinished(record); err != nil || have != n {
				t.Errorf("%s: %d is read as %d, %v", name, n, have, err)
			}
			if have, err := decodeUnfinished(record[:1]); err == nil {
				t.Errorf("%s: nothing is read as %d", name, have)
			}
		}
	}
}
