package main

import (
	"context"
	"math"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestBodiesAreOfTheSizesThatTheTableNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		size int
		want float64
	}{
		{"small call", len(smallBody(false)), 1 << 10},
		{"answer", len(answerJSON), 1 << 10},
		{"event", len(eventDelta), 150},
		{"large call in one message", len(largeBody(1)), 200 << 10},
		{"large call in 400 messages", len(largeBody(400)), 200 << 10},
	} {
		if off := math.Abs(float64(c.size)/c.want - 1); off > 0.1 {
			t.Errorf("%s: %d bytes, want about %.0f", c.name, c.size, c.want)
		}
	}
}

func TestAFigureIsHeldToItsBounds(t *testing.T) {
	t.Parallel()
	most := row{compare: ratio, must: 1.5, aim: 1.2}
	least := row{compare: ratio, must: 0.95, aim: 1.03, atLeast: true}
	for _, c := range []struct {
		row   row
		value float64
		quick bool
		want  verdict
	}{
		{most, 1.2, false, reached},
		{most, 1.3, false, held},
		{most, 1.51, false, missed},
		{most, 1.51, true, nearly},
		{most, 1.8, true, missed},
		{least, 1.03, false, reached},
		{least, 1, false, held},
		{least, 0.94, false, missed},
		{least, 0.94, true, nearly},
		{least, 0.7, true, missed},
	} {
		if got := c.row.judge(c.value, c.quick); got != c.want {
			t.Errorf("%v (at least: %t, quick: %t): %q, want %q", c.value, c.row.atLeast, c.quick, got, c.want)
		}
	}
}

func TestWhatIsMeasuredIsTheMedianOfPairs(t *testing.T) {
	t.Parallel()
	r := new(report)
	r.add(measure{rows: []row{{label: "p50", figure: medianLatency, unit: microseconds, compare: added, must: ms(1), aim: ms(0.1)}}}, []pair{
		{{P50: 100 * time.Microsecond}, {P50: 140 * time.Microsecond}},
		{{P50: 300 * time.Microsecond}, {P50: 320 * time.Microsecond}}, // a noisy minute
		{{P50: 100 * time.Microsecond}, {P50: 900 * time.Microsecond}},
	})
	if got := r.Rows[0]; got.Measured != 40 || got.Verdict != reached || got.Must != "≤ bare + 1000 µs" {
		t.Errorf("%+v", got)
	}
}

func TestTheTableReplacesTheOneInTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "README.md")
	if err := os.WriteFile(file, []byte("before\n"+tableBegins+"old\n"+tableEnds+"after\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &report{Machine: "a machine"}
	if err := r.writeInto(file); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, "before\n"+tableBegins) || !strings.HasSuffix(text, tableEnds+"after\n") ||
		!strings.Contains(text, "a machine") || strings.Contains(text, "old") {
		t.Error(text)
	}
}

func TestLinesReadWhatTheBackendAnswers(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(newBackend())
	defer server.Close()
	address := server.Listener.Addr().String()
	o := order{Job: job{Body: smallBody(false)}}

	calls, err := dial(context.Background(), address, o.request(address, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer calls.close()
	for range 3 {
		if err := calls.call(); err != nil {
			t.Fatal(err)
		}
	}

	events, err := dial(context.Background(), address, o.request(address, wantStream))
	if err != nil {
		t.Fatal(err)
	}
	defer events.close()
	if err := events.open(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := events.event(); err != nil {
			t.Fatal(err)
		}
	}
}
