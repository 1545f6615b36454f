package badger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/storage"
)

// record is like the record of a call: 300 bytes of JSON.
func record(n int) (key, val []byte) {
	key = fmt.Appendf(nil, "call/user-%04d/%016x", n%1000, n)
	val = fmt.Appendf(nil, `{"model":"claude-sonnet","input":%d,"output":%d,"cache_read":%d,"cost":"%d.%09d",`+
		`"request_id":"req_%032x","key":"key_%016x","started":%d,"ended":"end_turn","stream":true,"status":200,`+
		`"session":"","attempts":1,"upstream":"https://api.example.com"}`,
		n%9973, n%997, n%7919, n%3, n%1e9, n*7919, n%31, 1_790_000_000+n)
	return key, val
}

func writeRecords(tb testing.TB, e storage.Engine, from, count int) {
	tb.Helper()
	err := e.Update(tb.Context(), func(tx storage.Txn) error {
		for n := from; n < from+count; n++ {
			key, val := record(n)
			if err := tx.Set(key, val, never); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
}

func BenchmarkCommit(b *testing.B) {
	for _, count := range []int{1, 64} {
		b.Run(fmt.Sprintf("entries=%d", count), func(b *testing.B) {
			e := openTest(b, b.TempDir())
			n := 0
			for b.Loop() {
				writeRecords(b, e, n, count)
				n += count
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkMemory writes 200,000 records and reads at random, with each value
// of `memory`. Resident memory is that of the whole process including the test;
// to compare the values, run them one at a time.
func BenchmarkMemory(b *testing.B) {
	const records = 200_000
	for _, word := range []string{"small", "normal", "large"} {
		b.Run(word, func(b *testing.B) {
			c := testConfig(b.TempDir())
			c.size = sizings[word]
			before := runtime.NumGoroutine()
			e := openWith(b, c)
			goroutines := runtime.NumGoroutine() - before
			for n := 0; n < records; n += 1000 {
				writeRecords(b, e, n, 1000)
			}
			written := resident(b)

			for b.Loop() {
				key, _ := record(rand.IntN(records))
				if get(b, e, string(key)) == nil {
					b.Fatalf("%s is missing", key)
				}
			}
			b.ReportMetric(written, "MiB-after-writes")
			debug.FreeOSMemory() // the runtime does this later
			b.ReportMetric(resident(b), "MiB-settled")
			b.ReportMetric(float64(goroutines), "goroutines")
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(onDisk(b, c.dir), "MiB-on-disk")
		})
	}
}

// resident returns the process's resident memory in MiB, or 0 if it is unknown.
func resident(tb testing.TB) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, line, _ := strings.Cut(string(status), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(line, &kib); err != nil {
		tb.Fatal(err)
	}
	return kib / 1024
}

// onDisk returns the size of the tables in dir in MiB.
func onDisk(tb testing.TB, dir string) (mib float64) {
	tables, err := filepath.Glob(filepath.Join(dir, "*.sst"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, table := range tables {
		info, err := os.Stat(table)
		if err != nil {
			tb.Fatal(err)
		}
		mib += float64(info.Size()) / (1 << 20)
	}
	return mib
}
